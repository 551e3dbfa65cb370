"""The JSON of a configuration, byte for byte as clients of Triton know it, and the way back."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trireme.config.load import finalize_config, read_config
from trireme.config.text.json_form import from_json, to_json
from trireme.config.text.pbtxt import parse_text
from trireme.core.errors import InvalidArgumentError, ServingError

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.pbtxt")))
def test_a_loaded_configuration_prints_as_triton_prints_it(name: str, tmp_path: Path) -> None:
    version_dir = tmp_path / name / "1"
    version_dir.mkdir(parents=True)
    (version_dir / "model.py").touch()
    (tmp_path / name / "config.pbtxt").write_bytes((GOLDEN / f"{name}.pbtxt").read_bytes())
    message = finalize_config(
        read_config(
            tmp_path / name,
            override_json=None,
            config_name=None,
            is_auto_complete_enabled=True,
            version_dirs=[version_dir],
        ),
        gpu_count=0,
    )
    printed = to_json(message)
    assert printed == (GOLDEN / f"{name}.json").read_text().rstrip("\n")
    assert from_json(printed) == message


def test_an_ensemble_prints_its_steps() -> None:
    message = parse_text('ensemble_scheduling { step { model_name: "a" model_version: -1 } }', "p")
    assert json.loads(to_json(message))["ensemble_scheduling"] == {
        "step": [{"model_name": "a", "model_version": -1, "input_map": {}, "output_map": {}, "model_namespace": ""}],
        "max_inflight_requests": 0,
    }


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        ("0.1", "0.1"), ("1", "1"), ("1000000", "1000000"), ("1e21", "1e21"), ("1e20", "100000000000000000000.0"),
        ("1e-6", "0.000001"), ("1e-7", "1e-7"), ("2.5e-9", "2.5e-9"), ("-0.0", "0"), ("inf", '"Infinity"'),
        ("nan", '"NaN"'), ("123456.75", "123456.75"),
    ],
)  # fmt: skip
def test_buckets_print_in_the_shortest_form(value: str, printed: str) -> None:
    text = to_json(
        parse_text(f"model_metrics {{ metric_control {{ histogram_options {{ buckets: {value} }} }} }}", "p")
    )
    assert f'"buckets":[{printed}]' in text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_reads_back_as_it_was(value: float) -> None:
    message = parse_text("model_metrics { metric_control { histogram_options { } } }", "p")
    message.model_metrics.metric_control[0].histogram_options.buckets.append(value)
    back = from_json(to_json(message)).model_metrics.metric_control[0].histogram_options.buckets[0]
    assert back == value or math.isclose(back, value, rel_tol=1e-16)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_string_is_valid_json(value: str) -> None:
    message = from_json(json.dumps({"name": value}))
    assert json.loads(to_json(message))["name"] == value


def test_overrides_are_read_leniently() -> None:
    message = from_json(
        '{"maxBatchSize": "3", "input": [{"name": "a", "data_type": "type_fp32", "dims": ["2", 3.0]}], "output": null,'
        ' "instance_group": {"kind": "kind_cpu"}, "dynamic_batching": {"preserve_ordering": "true"},'
        ' "parameters": {"k": {"string_value": "v"}}}'
    )
    assert message.max_batch_size == 3
    assert list(message.input[0].dims) == [2, 3]
    assert message.input[0].data_type == 11
    assert message.instance_group[0].kind == 2
    assert message.dynamic_batching.preserve_ordering
    assert message.parameters["k"].string_value == "v"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "not valid JSON"),
        *(
            ('{"name": ' + '{"a":' * levels + "1" + "}" * (levels + 1), "not valid JSON: it is nested too deeply")
            for levels in (254, 3_000, 60_000, 100_000)
        ),
        ('{"\\ud800": 1}', "Root element: a name is no text"),
        ('{"parameters": {"\\ud800": {"string_value": "x"}}}', "parameters: a name is no text"),
        ("[]", "Root element must be a message."),
        ('{"max_batchsize": 1}', "max_batchsize: Cannot find field, did you mean 'max_batch_size'?"),
        ('{"input": [{"nam": 1}]}', "input[0].nam: Cannot find field, did you mean 'name'?"),
        ('{"input": [{"data_type": "FP32"}]}', '(input[0].data_type): invalid value "FP32" for type DataType, did you'
         " mean 'TYPE_FP32'?"),
        ('{"input": [{"data_type": 99}]}', "(input[0].data_type): invalid value 99"),
        ('{"input": [{"dims": [2.5]}]}', "(input[0].dims[0]): invalid value 2.5 for type int64"),
        ('{"max_batch_size": true}', "(max_batch_size): invalid value true for type int32"),
        ('{"max_batch_size": 99999999999}', "(max_batch_size): invalid value 99999999999 for type int32"),
        ('{"name": 5}', "(name): invalid value 5 for type string"),
        ('{"name": "\\ud800"}', "(name): invalid value"),
        ('{"dynamic_batching": []}', "dynamic_batching: Proto field is not repeating, cannot start list."),
        ('{"parameters": {"a": "b"}}', "(parameters['a']): invalid value \"b\" for type ModelParameter"),
        ('{"dynamic_batching": {}, "sequence_batching": {}}', "oneof field 'scheduling_choice' is already set"),
        ('{"response_cache": {"enable": 1}}', "(response_cache.enable): invalid value 1 for type bool"),
    ],
)  # fmt: skip
def test_a_wrong_override_names_the_member(text: str, expected: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        from_json(text)
    assert expected in caught.value.message


_KEYS = st.sampled_from(
    ["name", "max_batch_size", "input", "dims", "data_type", "parameters", "dynamic_batching", "kind", "instance_group",
     "sequence_batching", "direct", "minimum_slot_utilization", "priority_queue_policy", "1", "x"]
)  # fmt: skip
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.just("TYPE_FP32"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.text() | st.dictionaries(_KEYS, _VALUES).map(json.dumps))
def test_arbitrary_json_never_raises_anything_else(text: str) -> None:
    try:
        to_json(from_json(text))
    except ServingError:
        pass


_TEXTS = st.one_of(st.sampled_from(["name", "input", "dims", "parameters", "max_batch_size", "TYPE_FP32"]), st.text())
_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), _TEXTS, st.just("\ud800")),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(_TEXTS | st.just("\udfff"), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(_TEXTS, _VALUES, max_size=4))
def test_whatever_json_says_is_taken_or_refused_in_words(members: dict[str, Any]) -> None:
    told = ""
    try:
        from_json(json.dumps(members))
    except InvalidArgumentError as error:
        told = error.message
    told.encode()  # what is told can be sent
