"""What the server fills in from a model's files and words."""

from __future__ import annotations

import pytest

from trireme.config.autofill import autofill
from trireme.config.text.pbtxt import parse_text
from trireme.core.errors import InvalidArgumentError


def filled(text: str, *listings: list[str], name: str = "m") -> tuple[str, str, str]:
    message = parse_text(text, "p")
    autofill(message, name, listings)
    assert message.name == name
    return message.backend, message.platform, message.default_model_filename


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["model.py", "config.json"], ("python", "", "model.py")),
        (["model.onnx"], ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        (["model.plan", "model.onnx", "model.py"], ("tensorrt", "tensorrt_plan", "model.plan")),
        (["model.pt", "model.py"], ("pytorch", "pytorch_libtorch", "model.pt")),
        (["model.pt2"], ("pytorch", "torch_aoti", "model.pt2")),
        (["model.xml"], ("openvino", "", "model.xml")),
        (["config.json", "model.safetensors"], ("transformers", "", "config.json")),
        (["config.json", "engine.safetensors", "trireme_engine.json"], ("llm", "", "trireme_engine.json")),
        (["MLmodel", "model.pkl", "requirements.txt"], ("mlflow", "", "MLmodel")),
        (["model.pkl"], ("sklearn", "", "model.pkl")),
        (["model.ubj"], ("xgboost", "", "model.ubj")),
        (["model.txt"], ("lightgbm", "", "model.txt")),
        (["model.cbm"], ("catboost", "", "model.cbm")),
        (["xgboost.json"], ("fil", "", "xgboost.json")),
        (["model.savedmodel", "model.graphdef"], ("tensorflow", "tensorflow_graphdef", "model.graphdef")),
    ],
)
def test_files_tell_the_backend(files: list[str], expected: tuple[str, str, str]) -> None:
    assert filled("", files) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('backend: "python"', ("python", "", "model.py")),
        ('backend: "python" default_model_filename: "my.py"', ("python", "", "my.py")),
        ('backend: "python" platform: "anything"', ("python", "anything", "model.py")),
        ('backend: "pytorch"', ("pytorch", "pytorch_libtorch", "model.pt")),
        ('platform: "torch_aoti"', ("pytorch", "torch_aoti", "model.pt2")),
        ('platform: "onnxruntime_onnx"', ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        ('default_model_filename: "model.py"', ("python", "", "model.py")),
        ('backend: "tensorflow"', ("tensorflow", "", "")),
        ('backend: "fil"', ("fil", "", "")),
        ('backend: "xgboost"', ("xgboost", "", "model.ubj")),
        ('backend: "something"', ("something", "", "")),
        ('backend: "transformers"', ("transformers", "", "config.json")),
        ('backend: "llm"', ("llm", "", "")),
        ('platform: "ensemble"', ("", "ensemble", "")),
        ('platform: "unknown"', ("", "unknown", "")),
    ],
)
def test_one_word_tells_the_others(text: str, expected: tuple[str, str, str]) -> None:
    assert filled(text, ["unrelated"]) == expected


def test_a_later_version_folder_decides_where_the_first_is_empty() -> None:
    assert filled("", [], ["model.py"])[0] == "python"


def test_the_model_name_may_end_with_the_backend() -> None:
    assert filled("", ["x"], name="m.identity") == ("identity", "", "model.identity")


def test_a_model_that_nothing_tells_of_is_refused() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        filled("", ["x"])
    assert caught.value.message == (
        "Invalid model name: Could not determine backend for model 'm' with no backend in model configuration. "
        "Expected model name of the form 'model.<backend_name>'."
    )
