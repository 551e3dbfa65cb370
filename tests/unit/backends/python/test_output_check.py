"""What is said about outputs that a configuration does not promise."""

from __future__ import annotations

import logging

import pytest

from trireme.backends.python.output_check import OutputCheck
from trireme.config.model_config import ModelConfig, TensorConfig
from trireme.proto import model_config_pb2


def check(is_strict: bool, backend: str = "python", max_batch_size: int = 0, said: str = "") -> OutputCheck:
    message = model_config_pb2.ModelConfig(name="m", backend=backend, max_batch_size=max_batch_size)
    if said:
        message.parameters["strict_outputs"].string_value = said
    output = message.output.add(name="OUTPUT0", data_type="TYPE_FP32")
    output.dims.extend([-1, 2])
    config = ModelConfig.from_message(message)
    assert isinstance(config.outputs["OUTPUT0"], TensorConfig)
    return OutputCheck(config, ["STATE"], is_strict)


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (
            ("OUTPUT", "FP32", (1, 2)),
            "'OUTPUT', which its configuration does not have, did you mean 'OUTPUT0'?",
        ),
        (("OUTPUT0", "INT64", (1, 2)), "made output 'OUTPUT0' with datatype INT64, its configuration says FP32"),
        (("OUTPUT0", "FP32", (1, 3)), "made output 'OUTPUT0' with shape [1, 3], its configuration says [-1, 2]"),
        (("OUTPUT0", "FP32", (2,)), "made output 'OUTPUT0' with shape [2], its configuration says [-1, 2]"),
    ],
)
def test_strict_check_refuses_every_time_with_the_words(form: tuple[str, str, tuple[int, ...]], words: str) -> None:
    strict = check(is_strict=True)
    for _ in range(2):
        error = strict.examine(*form)
        assert error is not None
        assert words in error.message
    assert form not in strict.known


@pytest.mark.parametrize("is_strict", [True, False])
def test_what_is_wrong_is_logged_once_per_output(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, is_strict: bool
) -> None:
    monkeypatch.setattr(logging.getLogger("trireme"), "propagate", True)
    examined = check(is_strict)
    for name, shape in (("OUTPUT0", (1, 3)), ("OUTPUT0", (1, 3)), ("OUTPUT0", (2, 5)), ("OTHER", (1,))):
        assert (examined.examine(name, "FP32", shape) is not None) == is_strict
    assert [record.message.split(" ")[4] for record in caplog.records] == ["'OUTPUT0'", "'OTHER',"]
    assert (("OUTPUT0", "FP32", (1, 3)) in examined.known) != is_strict


@pytest.mark.parametrize(
    ("is_strict", "said", "is_refused", "line_count"),
    [
        (True, "false", False, 0),
        (False, "False", False, 0),
        (False, "true", True, 1),
        (True, "of my own", True, 1),
        (False, "of my own", False, 1),
    ],
)
def test_a_model_may_decide_for_itself(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    is_strict: bool,
    said: str,
    is_refused: bool,
    line_count: int,
) -> None:
    monkeypatch.setattr(logging.getLogger("trireme"), "propagate", True)
    error = check(is_strict, said=said).examine("OUTPUT0", "FP32", (2,))
    assert (error is not None, len(caplog.records)) == (is_refused, line_count)


def test_promised_outputs_and_states_pass() -> None:
    strict = check(is_strict=True)
    assert strict.examine("OUTPUT0", "FP32", (7, 2)) is None
    assert strict.examine("STATE", "INT8", (9,)) is None
    assert ("OUTPUT0", "FP32", (7, 2)) in strict.known


@pytest.mark.parametrize("backend", ["python", "pytorch", "onnxruntime", "of_another_package"])
def test_no_backend_is_taken_at_its_word(backend: str) -> None:
    strict = check(is_strict=True, backend=backend)
    assert strict.examine("OTHER", "FP32", (1,)) is not None
    assert strict.examine("OUTPUT0", "FP64", (7, 2)) is not None
    assert strict.examine("OUTPUT0", "FP32", (7, 3)) is not None


def test_batch_dimension_is_free() -> None:
    strict = check(is_strict=True, max_batch_size=8)
    assert strict.examine("OUTPUT0", "FP32", (3, 1, 2)) is None
    assert strict.examine("OUTPUT0", "FP32", (1, 2)) is not None
