"""`trireme config`: which models a path means, what is said about them, and the exit code."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trireme.app.config_check.repository import subjects_of
from trireme.cli import main as trireme_command

COMPLETING = """class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        return config

    def execute(self, requests): ...
"""
GOOD = """backend: "python"
input [ { name: "x", data_type: TYPE_FP32, dims: [ 4 ] } ]
output [ { name: "y", data_type: TYPE_FP32, dims: [ 4 ] } ]
max_batch_size: 8
dynamic_batching { }
"""


def model(repository: Path, name: str, config: str | None = GOOD) -> Path:
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_text("class TritonPythonModel:\n    def execute(self, requests): ...\n")
    if config is not None:
        (folder / "config.pbtxt").write_text(config)
    return folder


def test_check_says_ok_for_a_folder_and_for_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model(tmp_path, "good")
    assert trireme_command.main(["config", "check", str(folder)]) == 0
    assert trireme_command.main(["config", "check", str(folder / "config.pbtxt")]) == 0
    assert capsys.readouterr().out == "good: ok\ngood: ok\n"


def test_check_notes_a_package_that_the_code_imports_and_that_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = model(tmp_path, "hungry")
    code = folder / "1/model.py"
    whole = code.read_text()
    code.write_text(f"import os.path, no_such_package.part\nimport triton_python_backend_utils, beside\n{whole}")
    for name in ("beside.py", "compiled.so", "without_source.pyc", "folder/part.py"):
        (folder / "1" / name).parent.mkdir(exist_ok=True)
        (folder / "1" / name).touch()
    assert trireme_command.main(["config", "check", str(folder)]) == 0
    told = f"hungry: ok; {code}:1 imports 'no_such_package', which is not installed here\n"
    assert capsys.readouterr().out == told
    for text in (
        "try:\n    import no_such_package\nexcept ImportError:\n    pass\n",
        "import sys\nsys.path.append('elsewhere')\nimport no_such_package\n",
        "class Helper:\n    def help(self):\n        import no_such_package\n",
        "import __main__, compiled, without_source, folder.part\n",
    ):
        code.write_text(text + whole)
        assert trireme_command.main(["config", "check", str(folder)]) == 0
        assert capsys.readouterr().out == "hungry: ok\n", text
    code.write_text(f"from no_such_package import part\n{whole}")
    (folder / "requirements.txt").write_text("no-such-package\n")
    assert trireme_command.main(["config", "check", str(folder)]) == 0
    assert capsys.readouterr().out == "hungry: ok\n", "it is installed for the model"


def test_check_notes_a_parameter_whose_name_is_nearly_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parameters = (
        f'parameters {{ key: "{name}" value {{ string_value: "x" }} }}\n' for name in ("EXECUTION_ENV_PAHT", "own")
    )
    folder = model(tmp_path, "mine", f'backend: "python"\nversion_policy {{ all {{}} }}\n{"".join(parameters)}')
    (folder / "2").mkdir()
    (folder / "2" / "model.py").write_text((folder / "1" / "model.py").read_text())
    assert trireme_command.main(["config", "check", str(folder)]) == 0
    told = "parameter 'EXECUTION_ENV_PAHT' is none of the server's and is left to the model"
    assert capsys.readouterr().out.count(f"; {told}: did you mean 'EXECUTION_ENV_PATH'?") == 1


def test_check_of_a_repository_names_each_model_and_fails_if_one_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model(tmp_path, "good")
    model(tmp_path, "bad", GOOD.replace("max_batch_size: 8", "max_batch_size: -1"))
    assert trireme_command.main(["config", "check", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert printed.out == "good: ok\n"
    assert printed.err.startswith("bad: ")
    assert "max_batch_size" in printed.err


def test_check_tells_the_line_of_a_mistake_in_the_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model(tmp_path, "typo", GOOD.replace("dynamic_batching", "dynamic_baching"))
    assert trireme_command.main(["config", "check", str(folder)]) == 1
    message = capsys.readouterr().err
    assert "dynamic_baching" in message
    assert "5" in message


def test_tensor_that_is_declared_twice_is_told_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = 'input [ { name: "x", data_type: TYPE_INT32, dims: [ 2 ] } ]\n'
    inputs = model(tmp_path, "inputs", GOOD + again)
    outputs = model(tmp_path, "outputs", GOOD + again.replace("input", "output").replace('"x"', '"y"'))
    assert trireme_command.main(["config", "check", str(tmp_path)]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"inputs: {inputs / 'config.pbtxt'}:6: model input 'x' is declared more than once for inputs: input[0] has "
        "that name too; rename or remove one of them, of which only the last counts; Triton answers no request to such "
        "a model",
        f"outputs: {outputs / 'config.pbtxt'}:6: model output 'y' is declared more than once for outputs: output[0] "
        "has that name too; rename or remove one of them, of which only the last counts",
        "2 mistakes in 2 of 2 models",
    ]


def test_explain_prints_what_the_server_fills_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model(tmp_path, "good")
    assert trireme_command.main(["config", "explain", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert 'name: "good"' in printed
    assert "preferred_batch_size: 8" in printed
    assert 'default_model_filename: "model.py"' in printed


def test_model_that_completes_itself_is_ok_and_said_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model(tmp_path, "auto", config=None)
    (folder / "1" / "model.py").write_text(COMPLETING)
    assert trireme_command.main(["config", "check", str(folder)]) == 0
    assert "auto_complete_config" in capsys.readouterr().out


def test_missing_path_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert trireme_command.main(["config", "check", "/nowhere/model"]) == 2
    assert "/nowhere/model: there is no such file or folder" in capsys.readouterr().err


def test_alternative_configuration_belongs_to_the_folder_above(tmp_path: Path) -> None:
    folder = model(tmp_path, "good")
    (folder / "configs").mkdir()
    (folder / "configs" / "fast.pbtxt").write_text(GOOD)
    (subject,) = subjects_of(folder / "configs" / "fast.pbtxt")
    assert subject == (folder, "fast")


@pytest.mark.parametrize("words", [["config"], ["config", "check"], ["config", "explode", "x"]])
def test_incomplete_command_prints_its_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert trireme_command.main(words) == 2
    assert "Usage: trireme config check [--devices=DEVICES] PATH" in capsys.readouterr().err


def test_misspelt_verb_and_flag_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trireme_command.main(["config", "chek", str(tmp_path)]) == 2
    assert "there is no command 'trireme config chek', did you mean 'check'?" in capsys.readouterr().err
    assert trireme_command.main(["config", "check", "--device=cpu", str(tmp_path)]) == 2
    assert "there is no flag '--device=cpu', did you mean '--devices'?" in capsys.readouterr().err


def test_all_mistakes_of_a_model_are_told_with_their_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """bakend: "python"
input [
  { name: "x", data_type: FP32, dims: [ 4 ] },
  { name: "z", dims: [ 0 ] }
]
output [ { name: "y", data_type: TYPE_FP32, dims: [ four ] } ]
max_batch_size: 4
dynamic_batching {
  preferred_batch_size: [ 8 ]
}
instance_group [ { kind: KIND_GPU } ]
parameters { key: "trireme_load_timeout" value { string_value: "soon" } }
"""
    folder = model(tmp_path, "many", text)
    (folder / "1" / "model.py").write_text("class TritonPythonModel:\n    def execute(self): ...\n")
    assert trireme_command.main(["config", "check", "--devices=cpu", str(folder)]) == 1
    config = folder / "config.pbtxt"
    told = [
        f"{config}:1: field 'bakend': ModelConfig has no field named 'bakend', did you mean 'backend'?",
        f"{config}:3: field 'input.data_type': DataType has no value 'FP32', did you mean 'TYPE_FP32'?",
        f"{config}:6: field 'output.dims': Couldn't parse integer: four",
        f"{config}:9: dynamic batching preferred size must be <= max batch size for many; raise max_batch_size, which "
        "is 4, to 8, or lower the preferred sizes",
        f"{config}:11: instance group many_0 of model many has kind KIND_GPU but no GPUs are available; write kind: "
        "KIND_CPU, or KIND_AUTO, which takes a GPU where there is one",
        f"{config}:4: model input 'z' must specify 'data_type' for many; add data_type: there are TYPE_FP32, "
        "TYPE_INT64, TYPE_STRING and the like",
        f"{config}:4: model input 'z' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for "
        "many",
        f"{folder}/1/model.py:2: execute is called with one argument: def execute(self, requests)",
        f"{config}:12: parameter 'trireme_load_timeout' of model 'many' must be seconds, 0 or more, found 'soon'",
    ]
    assert capsys.readouterr().err == "".join(f"many: {line}\n" for line in told)


def test_devices_of_another_machine_can_be_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model(tmp_path, "fast", GOOD + "instance_group [ { kind: KIND_GPU gpus: [ 1 ] } ]\n")
    assert trireme_command.main(["config", "check", "--devices=cuda:1", str(folder)]) == 1
    assert "there is 1 GPU here: leave gpus out to use what there is" in capsys.readouterr().err
    assert trireme_command.main(["config", "check", "--devices=cuda:2", str(folder)]) == 0
    assert trireme_command.main(["config", "check", "--devices=cude:2", str(folder)]) == 2


def test_explain_shows_what_this_machine_makes_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model(tmp_path, "good")
    assert trireme_command.main(["config", "explain", "--devices=cpu", str(folder)]) == 0
    assert "kind: KIND_CPU" in capsys.readouterr().out
    assert trireme_command.main(["config", "explain", "--devices=cuda:1", str(folder)]) == 0
    assert "kind: KIND_GPU" in capsys.readouterr().out


def test_ensemble_alone_is_held_against_the_models_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model(tmp_path, "good")
    maps = 'input_map { key: "x" value: "x" } output_map { key: "y" value: "y" }'
    steps = f'step {{ model_name: "%s" model_version: -1 {maps} }}'
    text = GOOD.replace('backend: "python"', 'platform: "ensemble"').replace("dynamic_batching { }\n", "")
    folder = model(tmp_path, "chain", text + f"ensemble_scheduling {{ {steps % 'good'} }}\n")
    assert trireme_command.main(["config", "check", str(folder)]) == 0
    (folder / "config.pbtxt").write_text(text + f"ensemble_scheduling {{ {steps % 'god'} }}\n")
    assert trireme_command.main(["config", "check", str(folder)]) == 1
    assert "chain/config.pbtxt:5: ensemble chain contains models that are not available" in capsys.readouterr().err


def test_code_of_a_model_is_read_and_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model(tmp_path, "broken")
    (folder / "1" / "model.py").write_text("raise SystemExit(3)\n\ndef f(:\n")
    assert trireme_command.main(["config", "check", str(folder)]) == 1
    assert f"broken: {folder}/1/model.py:3: SyntaxError" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("backend", "told"),
    [
        ("pyton", "unable to find backend 'pyton' for model 'wrong'"),
        ("onnxruntim", "did you mean 'onnxruntime'?"),
        ("dali", "there is no backend 'dali' for model 'wrong': run the pipeline in a model of the python backend"),
        ("onnxruntime", "wrong/1: there is no model.onnx; put the model's file there, or name it in"),
        ("openvino", "wrong/1: there is no model.xml and no model.onnx; put the model's file there"),
        ("pytorch", "wrong/1: there is no model.pt and no model.pt2;"),
        ("transformers", "wrong/1: there is no config.json; put the files of a Hugging Face model there"),
        ("llm", "wrong/1: there is no config.json;"),
    ],
)
def test_check_knows_backends_and_their_files(
    backend: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = model(tmp_path, "wrong", GOOD.replace('"python"', f'"{backend}"'))
    assert trireme_command.main(["config", "check", str(folder)]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("wrong: ")
    assert told in printed


def test_check_is_content_with_files_that_are_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model(tmp_path, "trees", GOOD.replace('"python"', '"onnxruntime"'))
    (folder / "1" / "trees.onnx").write_bytes(b"")
    assert trireme_command.main(["config", "check", str(folder)]) == 1
    assert 'there is trees.onnx: rename it, or write default_model_filename: "trees.onnx"' in capsys.readouterr().err
    with (folder / "config.pbtxt").open("a") as file:
        file.write('default_model_filename: "trees.onnx"\n')
    assert trireme_command.main(["config", "check", str(folder)]) == 0
    named = GOOD.replace('"python"', '"transformers"')
    named += 'parameters { key: "model" value { string_value: "facebook/opt-125m" } }\n'
    assert trireme_command.main(["config", "check", str(model(tmp_path, "hub", named))]) == 0
    assert (
        trireme_command.main(["config", "check", str(model(tmp_path, "copy", GOOD.replace("python", "identity")))]) == 0
    )


def test_check_takes_a_folder_with_its_own_runtime_for_a_backend(tmp_path: Path) -> None:
    folder = model(tmp_path, "own", GOOD.replace('"python"', '"mine"'))
    (folder / "model.py").write_text("class TritonPythonModel:\n    def execute(self, requests): ...\n")
    assert trireme_command.main(["config", "check", str(folder)]) == 0


def test_check_takes_several_configurations_of_one_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model(tmp_path, "good")
    (folder / "configs").mkdir()
    paths = [folder / "configs" / f"{name}.pbtxt" for name in ("small", "large")]
    for path in paths:
        path.write_text(GOOD)
    assert trireme_command.main(["config", "check", *map(str, paths)]) == 0
    assert capsys.readouterr().out == "good: ok\ngood: ok\n"


@pytest.mark.timeout(20)
def test_check_tells_of_what_cannot_be_looked_at_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model(tmp_path, "good")
    (tmp_path / "loop").symlink_to("loop")
    model(tmp_path, "caf").rename(tmp_path / os.fsdecode(b"caf\xe9"))
    (tmp_path / "onnx/1").mkdir(parents=True)
    os.mkfifo(tmp_path / "onnx/1/model.onnx")
    python = model(tmp_path, "python") / "1/model.py"
    python.unlink()
    python.mkdir()
    assert trireme_command.main(["config", "check", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert printed.out == "good: ok\n"
    assert sorted(printed.err.splitlines()) == [
        "4 mistakes in 4 of 5 models",
        f"caf\\xe9: {tmp_path}/caf\\xe9: its name is not UTF-8; rename it",
        f"loop: {tmp_path}/loop: failed to open directory {tmp_path}/loop: Too many levels of symbolic links",
        f"onnx: {tmp_path}/onnx/1/model.onnx: it is neither a file nor a folder; put the model's file there",
        f"python: {python}: Is a directory",
    ]
    assert trireme_command.main(["config", "check", str(tmp_path / ("x" * 300))]) == 2
