"""The literal complaints about a configuration, when it is read and when it is loaded."""

from __future__ import annotations

import logging

import pytest

from trireme.config.load import finalize_config
from trireme.config.message import ConfigMessage
from trireme.config.normalise import normalise
from trireme.config.text.pbtxt import parse_text
from trireme.config.validation.stages import validate_poll
from trireme.core.errors import InvalidArgumentError

IO = 'input { name: "I" data_type: TYPE_FP32 dims: [2] } output { name: "O" data_type: TYPE_FP32 dims: [2] } '
EITHER = "'int32_false_true', 'fp32_false_true' or 'bool_false_true'"


def message_of(text: str) -> ConfigMessage:
    identity = "" if "platform:" in text or "backend:" in text else 'backend: "python" '
    message = parse_text(f'name: "m" {identity}{text}', "p")
    normalise(message)
    return message


def poll_complaint(text: str) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        validate_poll(message_of(text), includes_io=False)
    return caught.value.message


def load_complaint(text: str, gpu_count: int = 0) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        finalize_config(message_of(text), gpu_count)
    return caught.value.message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('platform: "x"', "unexpected platform type 'x' for m"),
        ('platform: "ensemble" backend: "python"',
         "Ensemble model 'm' must have platform type 'ensemble' and empty backend type"),
        ('platform: "tensorrt_plan" backend: "onnxruntime"',
         "unexpected 'platform' and 'backend' pair, got:tensorrt_plan, onnxruntime"),
        ('backend: "tensorflow"', "unexpected 'platform' and 'backend' pair, got:, tensorflow"),
        ("max_batch_size: -1", "'max_batch_size' must be non-negative value for m"),
        ("response_cache { enable: true } model_transaction_policy { decoupled: true }",
         "Response Cache does not currently support model m with 'decoupled' transaction policy. Please disable the "
         "response cache."),
        ("response_cache { enable: true } sequence_batching { }",
         "Response Cache does not currently support model m with sequence batching scheduler. Please disable the "
         "response cache."),
        ("model_metrics { metric_control { } }", "metric control must specify 'metric_identifier'"),
        ("model_metrics { metric_control { metric_identifier { } } }",
         "metric identifier must specify non-empty 'family'"),
        ('model_metrics { metric_control { metric_identifier { family: "f" } } }',
         "metric control must specify 'histogram_options'"),
        ('model_metrics { metric_control { metric_identifier { family: "f" } histogram_options { } } }',
         "histogram options must specify non-empty 'buckets'"),
    ],
)  # fmt: skip
def test_the_general_fields_are_checked_when_read(text: str, expected: str) -> None:
    assert poll_complaint(text) == expected


def test_python_takes_any_platform() -> None:
    validate_poll(message_of('backend: "python" platform: "tensorrt_plan"'), includes_io=False)


def test_an_unknown_metric_family_is_only_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    text = 'model_metrics { metric_control { metric_identifier { family: "f" } histogram_options { buckets: 1 } } }'
    with caplog.at_level(logging.WARNING):
        validate_poll(message_of(text), includes_io=False)
    assert "'f'" in caplog.messages[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("preferred_batch_size: 0", "dynamic batching preferred size must be positive for m"),
        ("preferred_batch_size: 5", "dynamic batching preferred size must be <= max batch size for m"),
        ("priority_levels: 2", "default priority level must be in range [1, 2] for m"),
        ("priority_levels: 2 default_priority_level: 3", "default priority level must be in range [1, 2] for m"),
        ("priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 3 value { } }",
         "priority queue policy must have priority level in range [1, 2] for m"),
        ("priority_levels: 2 default_priority_level: 1 preserve_ordering: true",
         "Only one priority level is allowed when 'preserve_ordering' is true for m"),
        ("preserve_ordering: true default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 5 }",
         "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for m"),
    ],
)  # fmt: skip
def test_dynamic_batching_is_checked_when_read(text: str, expected: str) -> None:
    assert poll_complaint(f"max_batch_size: 4 dynamic_batching {{ {text} }}") == expected


@pytest.mark.parametrize(
    "text",
    [
        "preserve_ordering: true default_queue_policy { timeout_action: DELAY }",
        "default_priority_level: 1",
        "priority_queue_policy { key: 1 value { } }",
    ],
)
def test_dynamic_batching_that_does_no_harm_passes(text: str) -> None:
    validate_poll(message_of(f"max_batch_size: 4 dynamic_batching {{ {text} }}"), includes_io=False)


START = 'control_input { name: "S" control { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } } '


def ready(values: str, name: str = "R") -> str:
    return START + f'control_input {{ name: "{name}" control {{ kind: CONTROL_SEQUENCE_READY {values} }} }}'


def correlation(values: str) -> str:
    return f'control_input {{ name: "C" control {{ kind: CONTROL_SEQUENCE_CORRID {values} }} }}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("control_input { }", "sequence batching control tensor must have a name for m"),
        (ready("int32_false_true: [0, 1]", "S"),
         "sequence batching control tensor 'S' is specified for multiple control kinds for m"),
        (START + START.replace('"S"', '"T"'), "sequence batching specifies multiple CONTROL_SEQUENCE_START "
         "tensors for m"),
        (ready(""), f"sequence batching must specify either {EITHER} for CONTROL_SEQUENCE_READY for m"),
        (ready("int32_false_true: [0, 1] fp32_false_true: [0, 1]"),
         "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and "
         "'bool_false_true' for "
         "CONTROL_SEQUENCE_READY for m"),
        (ready("fp32_false_true: [0]"),
         "sequence batching control 'fp32_false_true' must have exactly 2 entries for CONTROL_SEQUENCE_READY for m"),
        (correlation("data_type: TYPE_FP32"),
         "unexpected data type for control CONTROL_SEQUENCE_CORRID for m. Allowed data types are TYPE_UINT64, "
         "TYPE_INT64, "
         "TYPE_UINT32, TYPE_INT32 and TYPE_STRING"),
        (correlation("data_type: TYPE_UINT64 int32_false_true: [0, 1]"),
         f"sequence batching must not specify either {EITHER} for CONTROL_SEQUENCE_CORRID for m"),
        ("oldest { preferred_batch_size: 0 }", "sequence batching preferred batch size must be positive for m"),
        ("oldest { preferred_batch_size: 5 }", "sequence batching preferred batch size must be <= max batch "
         "size for m"),
        ("direct { minimum_slot_utilization: 1.5 }",
         "sequence batching minimum slot utilization must be in range (0.0, 1.0] for m"),
        ("direct { minimum_slot_utilization: nan }",
         "sequence batching minimum slot utilization must be in range (0.0, 1.0] for m"),
    ],
)  # fmt: skip
def test_sequence_batching_is_checked_when_read(text: str, expected: str) -> None:
    assert poll_complaint(f"max_batch_size: 4 sequence_batching {{ {text} }}") == expected


INITIAL = 'initial_state { name: "z" data_type: TYPE_INT32 dims: [2, 3] zero_data: true } '


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (INITIAL * 2, "initial_state field for state input 'X' must contain exactly one or zero element. Found '2' "
         "elements."),
        (INITIAL.replace("INT32", "FP32"),
         "The data type used for 'initial_state' field of state 'X' does not match the state data type."),
        (INITIAL.replace('name: "z"', ""), "Field 'name' must be set when using initial_state for state input 'X'."),
        (INITIAL.replace("[2, 3]", "[2]"), "Number of dimensions in 'initial_state' doesn't match the size of 'state' "
         "dimensions for state input 'X'. 1 != 2"),
        (INITIAL.replace("3", "-1", 2).replace("INT-12", "INT32"),
         "'initial_state' field for state input name 'X' contains variable dimensions."),
        (INITIAL.replace("[2,", "[5,"), "'initial_state' dim for input name 'X' doesn't match 'state' dim description. "
         "5 != 2"),
        (INITIAL.replace("zero_data: true", ""), "initial_state setting expects state'X' to have state_data set"),
    ],
)  # fmt: skip
def test_states_are_checked_at_load(text: str, expected: str) -> None:
    state = f'state {{ input_name: "X" output_name: "Y" data_type: TYPE_INT32 dims: [2, -1] {text} }}'
    assert load_complaint(f"{IO} sequence_batching {{ {state} }}") == expected


def tensor(fields: str) -> str:
    return f'name: "x" data_type: TYPE_FP32 {fields}'


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("data_type: TYPE_FP32 dims: 2", "model {} must specify 'name' for m"),
        ('name: "x" dims: 2', "model {} 'x' must specify 'data_type' for m"),
        (tensor(""), "model {} 'x' must specify 'dims' for m"),
        (tensor("dims: 0"), "model {} 'x' dimension must be integer >= 1, or -1 to indicate a variable-size dimension "
         "for m"),
        (tensor("dims: 1 reshape { }"), "model {} 'x' cannot have empty reshape for non-batching model as "
         "scalar tensors "
         "are not supported for m"),
        (tensor("dims: 1 reshape { shape: 0 }"), "model {} 'x' reshape dimensions must be integer >= 1, or -1 to "
         "indicate a variable-size dimension for m"),
        (tensor("dims: 2 reshape { shape: 3 }"), "model {} 'x' has different size for dims and reshape for m"),
        (tensor("dims: [-1, 2] reshape { shape: 2 }"), "model {} 'x' has different size for dims and reshape for m"),
        (tensor("dims: [2, -1, 3] reshape { shape: [-1, 6] }"),
         "model {} 'x' has different size for dims and reshape for m"),
        (tensor("dims: [-1, -1] reshape { shape: -1 }"),
         "model {} 'x' has different number of variable-size dimensions for dims and reshape for m"),
        (tensor("dims: 2 is_shape_tensor: true"), "shape tensors are only supported for TensorRT platform for m"),
        (tensor("dims: 2 is_non_linear_format_io: true"),
         "Non-linear IO format is only supported for the TensorRT platform for m"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("role", ["input", "output"])
def test_tensors_are_checked_at_load(role: str, fields: str, expected: str) -> None:
    text = f"{role} {{ {fields} }}"
    validate_poll(message_of(text), includes_io=False)
    assert load_complaint(text) == expected.format(role)
    with pytest.raises(InvalidArgumentError):
        validate_poll(message_of(text), includes_io=True)


def test_an_image_format_needs_three_dimensions() -> None:
    assert load_complaint(f"input {{ {tensor('dims: 2 format: FORMAT_NHWC')} }}") == (
        "model input NHWC/NCHW require 3 dims for m"
    )


def test_reshapes_that_keep_the_sizes_between_variables_pass() -> None:
    finalize_config(message_of(f"input {{ {tensor('dims: [2, -1, 6] reshape { shape: [2, -1, 3, 2] }')} }}"), 0)
    finalize_config(message_of(f"max_batch_size: 1 input {{ {tensor('dims: 1 reshape { shape: [] }')} }}"), 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("batch_input { data_type: TYPE_FP32 }",
         "batch input kind 'BATCH_ELEMENT_COUNT' expects 1 source input, got 0 for m"),
        ('batch_input { data_type: TYPE_INT64 source_input: "I" }',
         "batch input data type must be TYPE_INT32 or TYPE_FP32 for m"),
        ('batch_input { data_type: TYPE_FP32 source_input: "Z" }', "unknown source input name 'Z' for m"),
        ('batch_output { target_name: "Z" source_input: "I" }', "unknown target output name 'Z' for m"),
        ('batch_output { target_name: ["O", "O"] source_input: "I" }',
         "target output name 'O' can only be specified once for m"),
        ('batch_output { target_name: "O" }',
         "batch output kind 'BATCH_SCATTER_WITH_INPUT_SHAPE' expects 1 source input, got 0 for m"),
    ],
)  # fmt: skip
def test_batch_tensors_are_checked_at_load(text: str, expected: str) -> None:
    assert load_complaint(f"max_batch_size: 4 {IO} {text}") == expected


@pytest.mark.parametrize(
    ("text", "gpu_count", "expected"),
    [
        ("kind: KIND_CPU gpus: 0", 1, "instance group m_0 of model m has kind KIND_CPU but specifies one or more GPUs"),
        ("kind: KIND_MODEL gpus: 0", 1, "instance group m_0 of model m has kind KIND_MODEL but specifies one or "
         "more GPUs"),
        ("kind: KIND_GPU", 0, "instance group m_0 of model m has kind KIND_GPU but no GPUs are available"),
        ("kind: KIND_GPU gpus: 7", 2,
         "instance group m_0 of model m specifies invalid or unsupported gpu id 7. GPUs with at least the "
         "minimum required "
         "CUDA compute compatibility of 6.000000 are: 0, 1"),
        ('profile: "0"', 0, "instance group m_0 of model m and platform specifies profile field which is only "
         "supported "
         "for TensorRT models"),
    ],
)  # fmt: skip
def test_instance_groups_are_checked_at_load(text: str, gpu_count: int, expected: str) -> None:
    assert load_complaint(f"{IO} instance_group {{ {text} }}", gpu_count) == expected


def test_what_auto_complete_made_wrong_is_found_at_load() -> None:
    message = message_of("")
    message.dynamic_batching.preferred_batch_size.append(99)
    with pytest.raises(InvalidArgumentError) as caught:
        finalize_config(message, 0)
    assert caught.value.message == "dynamic batching preferred size must be <= max batch size for m"


@pytest.mark.parametrize("value", ["cuda", "cuda:1"])
def test_a_gpu_that_a_parameter_asks_for_is_missed_by_its_name(value: str) -> None:
    text = f'{IO} parameters {{ key: "device" value {{ string_value: "{value}" }} }}'
    assert load_complaint(text, 0) == "parameter 'device' of model m asks for a GPU but no GPUs are available"
