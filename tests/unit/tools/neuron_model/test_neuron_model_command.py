"""`trireme neuron-model`: the folder it writes for each flag, and what it says of mistakes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from trireme.cli import main as trireme_command
from trireme.config.load import finalize_config
from trireme.config.text.pbtxt import parse_text

TENSORS = ["--triton_input", "input,FP32,-1x224x224x3", "--triton_output", "output,FP32,-1x1000"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "rn50").write_bytes(b"compiled")
    (tmp_path / "saved").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(
    *flags: str, model_type: str = "pytorch", compiled: str = "rn50", cores: str = "0:15", tensors: list[str] = TENSORS
) -> int:
    words = ["--model_type", model_type, "--compiled_model", compiled, "--neuron_core_range", cores]
    return trireme_command.main(["neuron-model", *words, *tensors, "--triton_model_dir", "models/rn50-a", *flags])


def config(folder: Path) -> Any:
    path = folder / "models/rn50-a/config.pbtxt"
    message = parse_text(path.read_text(), str(path))
    return finalize_config(message, 0) if message.input else message


def parameters(message: Any) -> dict[str, str]:
    return {key: value.string_value for key, value in message.parameters.items()}


def test_folder_is_ready_to_be_served(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command() == 0
    message = config(folder)
    assert (message.name, message.backend, message.max_batch_size) == ("rn50-a", "neuron", 0)
    assert [(entry.name, list(entry.dims)) for entry in message.input] == [("input", [-1, 224, 224, 3])]
    assert [(entry.name, list(entry.dims)) for entry in message.output] == [("output", [-1, 1000])]
    (group,) = message.instance_group
    assert (group.count, group.Kind.Name(group.kind)) == (1, "KIND_MODEL")
    assert parameters(message) == {
        "COMPILED_MODEL": str(folder / "rn50"),
        "MODEL_TYPE": "pytorch",
        "NEURON_CORE_START_INDEX": "0",
        "NEURON_CORE_END_INDEX": "15",
        "NUM_THREADS_PER_CORE": "1",
    }
    assert list((folder / "models/rn50-a").rglob("*")) == [
        folder / "models/rn50-a/config.pbtxt",
        folder / "models/rn50-a/1",
    ]
    printed = capsys.readouterr().out
    assert "Cores: 0 to 15; instances: 1, with 16 cores each; threads per core: 1." in printed
    assert "Dynamic batching: off." in printed


def test_every_flag_reaches_the_configuration(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--model_version", "3", "--enable_dynamic_batching", "--max_batch_size", "32", "--threads_per_core", "2"]
    flags += ["--preferred_batch_size", "16", "--max_queue_delay_microseconds", "100", "--inf2"]
    flags += ["--disable_batch_requests_to_neuron", "--triton_model_instance_count", "3", "--compiled_batch_size", "4"]
    tensors = ["--triton_input", "A__0,INT64,128", "A__1,STRING,1", "--triton_input", "A__2,BF16,4x-1"]
    assert command(*flags, tensors=[*tensors, "--triton_output", "B__0,FP16,2"]) == 0
    message = config(folder)
    assert [entry.name for entry in message.input] == ["A__0", "A__1", "A__2"]
    assert [entry.data_type for entry in message.input] == [9, 13, 14]  # TYPE_INT64, TYPE_STRING, TYPE_BF16
    assert message.max_batch_size == 32
    assert list(message.dynamic_batching.preferred_batch_size) == [16]
    assert message.dynamic_batching.max_queue_delay_microseconds == 100
    assert message.instance_group[0].count == 3
    assert (folder / "models/rn50-a/3").is_dir()
    found = parameters(message)
    assert (found["NUM_THREADS_PER_CORE"], found["INF2"], found["COMPILED_BATCH_SIZE"]) == ("2", "true", "4")
    assert found["DISABLE_BATCH_REQUESTS_TO_NEURON"] == "true"
    printed = capsys.readouterr().out
    assert "Dynamic batching: on, preferred batch size 16, longest delay 100 us." in printed
    assert "the last 1 of the cores stay idle" in printed
    assert "Calls to the device: one for each request." in printed


def test_tags_and_signature_are_those_of_a_saved_model(folder: Path) -> None:
    flags = ("--tag_set", "serve,tpu", "--signature_def_key", "predict")
    assert command(*flags, model_type="tensorflow", compiled="saved") == 0
    found = parameters(config(folder))
    assert (found["TAG_SET"], found["SIGNATURE_DEF_KEY"]) == ("serve,tpu", "predict")


def test_file_inside_the_folder_moves_with_it(folder: Path) -> None:
    inside = folder / "models/rn50-a/1"
    inside.mkdir(parents=True)
    (inside / "model.pt").write_bytes(b"compiled")
    for given in ("models/rn50-a/1/model.pt", "1/model.pt", "model.pt"):
        assert command(compiled=given) == 0
        assert parameters(config(folder))["COMPILED_MODEL"] == "1/model.pt"


def test_python_model_is_written_for_those_who_want_to_edit_it(folder: Path) -> None:
    assert command("--python_model") == 0
    assert config(folder).backend == "python"
    code = (folder / "models/rn50-a/1/model.py").read_text()
    compile(code, "model.py", "exec")
    assert "class TritonPythonModel" in code


def test_tensors_of_an_onnx_file_may_be_left_to_the_server(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(model_type="onnx", tensors=[]) == 0
    assert len(config(folder).input) == 0
    assert "read from the file when the model loads" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tensors": []}, "a PyTorch file does not say what its tensors are"),
        ({"tensors": ["--triton_input", "input,FP32"]}, "must be NAME,TYPE,SHAPE such as"),
        ({"tensors": ["--triton_input", "input,FP31,4"]}, "there is no type 'FP31', only BF16"),
        ({"tensors": ["--triton_input", "input,FP32,4y4"]}, "the shape '4y4' must be numbers with x between"),
        ({"tensors": ["--triton_input", "input,FP32,4x0"]}, "a dimension is at least 1, or -1"),
        ({"tensors": ["--triton_input", "a,FP32,4", "a,FP32,5"]}, "--triton_input names 'a' twice"),
        ({"cores": "0-15"}, "must be the first and the last core, such as 0:15, found '0-15'"),
        ({"cores": "7:3"}, "'7:3' ends before it begins"),
        ({"compiled": "rn51"}, "--compiled_model 'rn51' is not there: there is no '"),
        ({"compiled": "saved"}, "is a folder, and a pytorch model is a file"),
        ({"model_type": "tensorflow"}, "is not a folder, and a SavedModel is one"),
    ],
)
def test_mistake_is_named_and_nothing_is_written(
    folder: Path, changes: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(**changes) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("trireme neuron-model: error: ")
    assert words in printed
    assert not (folder / "models").exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--triton_model_instance_count", "17"], "is more than the 16 cores"),
        (["--enable_dynamic_batching"], "give --max_batch_size"),
        (["--enable_dynamic_batching", "--max_batch_size", "4", "--preferred_batch_size", "8"], "is more than"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(
    flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*flags) == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--threads_per_core", "0"], ["--max_batch_size", "many"], ["--what"]])
def test_values_that_are_no_values_print_the_usage(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command(*flags) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("usage: trireme neuron-model")
    assert flags[0] in printed


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["--neuron_core_range", "0:99999999999"], "goes beyond core 65535: no machine has so many"),
        (["--triton_model_dir", ".."], "has no last part to name the model by"),
    ],
)
def test_values_that_no_server_could_use_are_refused(
    folder: Path, wrong: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*wrong) == 1  # the last of two values counts
    assert words in capsys.readouterr().err
    assert not (folder / "models").exists()


def test_batch_dimension_beside_a_batch_size_is_pointed_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--max_batch_size", "8") == 0
    assert "Note: with --max_batch_size the server adds the batch dimension" in capsys.readouterr().out


def test_help_is_printed_and_exits_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert trireme_command.main(["help", "neuron-model"]) == 0
    assert "--neuron_core_range A:B" in capsys.readouterr().out


def test_missing_tensorflow_is_said_with_the_way_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    assert command(model_type="tensorflow", compiled="saved", tensors=[]) == 1
    assert "needs the package 'tensorflow', which is not installed" in capsys.readouterr().err
