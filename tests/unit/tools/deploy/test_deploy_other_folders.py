"""Folders that hold no whole model of transformers: what they are is told, and what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trireme.tools.deploy.hub.model_files import read_folder
from trireme.tools.deploy.hub.other_folders import described
from trireme.tools.deploy.hub.resolve import find_model
from trireme.tools.deploy.options import DeployOptions, ModelNotUsableError


def refusal_of(path: Path) -> str:
    with pytest.raises(ModelNotUsableError) as refused:
        find_model(DeployOptions(str(path)))
    return str(refused.value)


def write_adapter(folder: Path, **entries: str) -> None:
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", **entries}))
    (folder / "adapter_model.safetensors").touch()


def test_an_adapter_is_told_with_its_base_and_how_it_is_merged(tmp_path: Path) -> None:
    write_adapter(tmp_path, base_model_name_or_path="facebook/opt-125m", task_type="SEQ_CLS")
    told = refusal_of(tmp_path)
    assert "it is an adapter (LoRA, made with peft) for 'facebook/opt-125m'" in told
    assert "from peft import AutoPeftModelForSequenceClassification as P;" in told
    assert f"\n  trireme deploy ./{tmp_path.name}-merged\n" in told
    program = told.split('python -c "')[1].split('"\n')[0]
    compile(program, "merge", "exec")


def test_an_adapter_with_a_config_beside_it_is_an_adapter_too(tmp_path: Path) -> None:
    write_adapter(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert "it is an adapter (LoRA, made with peft) for 'BASE'" in refusal_of(tmp_path)
    (tmp_path / "adapter_config.json").write_text("[")
    assert "it is an adapter" in refusal_of(tmp_path)


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (["a.Q4_K_M.gguf", "README.md"], "GGUF alone (a.Q4_K_M.gguf), the quantised form of llama.cpp"),
        (["model_index.json"], "it is a pipeline of the diffusers library (one)"),
        (["model.onnx"], "1/model.onnx and start 'trireme serve'"),
        (["tf_model.h5", "flax_model.msgpack"], "TensorFlow or Flax alone (flax_model.msgpack, tf_model.h5)"),
        (["model.safetensors"], "it has weights but no config.json"),
        (["one/config.pbtxt"], "it is a model repository already: trireme serve /"),
        (
            [f"checkpoint-{number}/config.json" for number in range(6)],
            "one: checkpoint-0, checkpoint-1, checkpoint-2, checkpoint-3 and 2 more; give the path of one of them",
        ),
        (["notes.txt"], "has no config.json, so it is not a folder that Hugging Face's save_pretrained wrote"),
        ([], "the folder is empty"),
    ],
)
def test_each_kind_of_folder_is_told(tmp_path: Path, files: list[str], told: str) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert told in refusal_of(tmp_path)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("models/opt-125m", "{0}/models --model-control-mode=explicit --load-model=opt-125m"),
        ("my models/my opt", "'{0}/my models' --model-control-mode=explicit --load-model='my opt'"),
    ],
)
def test_a_model_of_a_repository_is_served_alone(tmp_path: Path, place: str, words: str) -> None:
    folder = tmp_path / place
    folder.mkdir(parents=True)
    (folder / "config.pbtxt").touch()
    told = refusal_of(folder)
    assert "it is a model of a repository already, as its config.pbtxt tells" in told
    assert told.endswith(f"To serve it alone: trireme serve {words.format(tmp_path)}")


def test_other_forms_beside_the_usual_weights_do_no_harm(tmp_path: Path) -> None:
    for name in ("model.gguf", "model.onnx", "tf_model.h5", "model.safetensors"):
        (tmp_path / name).touch()
    (tmp_path / "config.json").write_text("{}")
    names = [file.name for file in read_folder(tmp_path, "m", "this folder").files]
    assert described("m", names, lambda _: "") is None


def test_a_file_is_told_by_what_it_is(tmp_path: Path) -> None:
    file = tmp_path / "model.GGUF"
    file.touch()
    assert "GGUF alone (model.GGUF)" in refusal_of(file)
    other = tmp_path / "model.bin"
    other.touch()
    assert refusal_of(other).endswith("is a file; give the folder that holds config.json and the weights")
    (tmp_path / "config.json").touch()
    assert refusal_of(other).endswith(f"is a file of a model; give its folder: trireme deploy {tmp_path}")
