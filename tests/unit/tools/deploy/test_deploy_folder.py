"""Which model is meant, what it is called, and what is written for it."""

from __future__ import annotations

import json
import re
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trireme.backends.transformers.tasks import canonical_task
from trireme.config.text.pbtxt import parse_text
from trireme.tools.deploy.checks.task import TASKS, checked_task, is_causal
from trireme.tools.deploy.folder.texts import folder_of
from trireme.tools.deploy.hub.model_files import (
    ModelFile,
    ModelFiles,
    files_to_fetch,
    missing_weights,
    read_folder,
    weight_files,
)
from trireme.tools.deploy.hub.resolve import find_model, served_name
from trireme.tools.deploy.hub.weights import read_header
from trireme.tools.deploy.options import DeployError, DeployOptions, ModelNotUsableError, NameTakenError

CAUSAL = {"architectures": ["OPTForCausalLM"]}
OTHER_CAUSAL = {"architectures": ["BloomForCausalLM"], "quantization_config": {}}
"""One that the engine for language models does not take."""
CLASSIFIER = {"architectures": ["BertForSequenceClassification"]}


def model_of(config: dict[str, Any], *names: str, reference: str = "owner/model", **changes: Any) -> ModelFiles:
    files = tuple(ModelFile(name, 10) for name in names)
    return ModelFiles(reference, "the hub", None, files, config, **changes)


def parameters_of(text: str) -> dict[str, str]:
    message = parse_text(text, "config.pbtxt")
    return {key: value.string_value for key, value in message.parameters.items()}


def written(
    config: dict[str, Any], placed: str, folder: Path, **wishes: Any
) -> tuple[Any, dict[str, str], dict[str, str]]:
    made = folder_of(folder, model_of(config, commit="abc123"), placed, DeployOptions("owner/model", **wishes))
    text = made.texts["config.pbtxt"]
    return parse_text(text, "config.pbtxt"), parameters_of(text), dict(made.texts)


def test_one_form_of_the_weights_is_fetched_and_what_loading_needs() -> None:
    model = model_of(
        CAUSAL,
        "config.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "pytorch_model.bin",
        "tf_model.h5",
        "flax_model.msgpack",
        "tokenizer.json",
        "README.md",
        "onnx/model.onnx",
        ".gitattributes",
        "picture.png",
        "1_Pooling/config.json",
    )
    assert files_to_fetch(model) == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "config.json",
        "tokenizer.json",
        "1_Pooling/config.json",
    ]


def test_an_index_says_which_files_are_weights_and_which_are_missing() -> None:
    names = ("a.safetensors", "consolidated.safetensors")
    model = model_of(CAUSAL, *names, indexed=frozenset({"a.safetensors", "b.safetensors"}))
    assert [file.name for file in weight_files(model.files, model.indexed)] == ["a.safetensors"]
    assert missing_weights(model) == "1 of 2 weight files are missing, the first is b.safetensors"


def test_weights_in_other_forms_are_named() -> None:
    told = missing_weights(model_of(CAUSAL, "model.gguf"))
    assert told is not None
    assert told.startswith("it has the model as GGUF alone (model.gguf)")
    assert missing_weights(model_of(CAUSAL, "model.ckpt")) == (
        "there are no safetensors or PyTorch weights, only .ckpt"
    )


@pytest.mark.parametrize(
    ("reference", "name", "served"),
    [
        ("tiiuae/falcon-7b", None, "falcon-7b"),
        ("/data/My model", None, "My-model"),
        ("/data/Schlüssel 7b", None, "Schlüssel-7b"),
        ("/data/mode\u0300le", None, "mod\u00e8le"),
        ("/data/模型", None, "模型"),
        ("/data/ (1) ", None, "1"),
        ("/", None, "model"),
        ("/data/scribe/1", None, "scribe"),
        ("/data/scribe/12/", None, "scribe"),
        ("/data/scribe/1", "7", "7"),
        ("/1", None, "1"),
        ("owner/7", None, "7"),
        ("gpt2", "größe", "größe"),
        ("gpt2", "chat", "chat"),
    ],
)
def test_the_name_is_the_last_part_unless_one_is_given(reference: str, name: str | None, served: str) -> None:
    assert served_name(DeployOptions(reference, name=name), model_of({}, reference=reference)) == served


@pytest.mark.parametrize("name", ["a/b", "..", "a b", "a?"])
def test_a_name_that_cannot_be_a_folder_or_a_part_of_a_url_is_refused(name: str) -> None:
    with pytest.raises(DeployError, match=re.escape(f"--name '{name}'")):
        served_name(DeployOptions("gpt2", name=name), model_of({}))


def test_folders_that_hold_no_model_are_explained(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ModelNotUsableError, match=r"has no config\.json"):
        find_model(DeployOptions(str(tmp_path)))
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(ModelNotUsableError, match="does not hold an object"):
        find_model(DeployOptions(str(tmp_path)))
    (tmp_path / "config.json").write_text(json.dumps(CAUSAL))
    with pytest.raises(ModelNotUsableError, match="there are no weights"):
        find_model(DeployOptions(str(tmp_path)))
    with pytest.raises(ModelNotUsableError, match="is a file"):
        find_model(DeployOptions(str(tmp_path / "config.json")))
    with pytest.raises(ModelNotUsableError, match="there is no folder"):
        find_model(DeployOptions("./nowhere"))


def test_the_backend_is_told_what_was_asked_for_and_no_more(tmp_path: Path) -> None:
    message, parameters, texts = written(OTHER_CAUSAL, "cpu", tmp_path / "m")
    assert message.backend == "transformers"
    assert message.max_batch_size == 8
    assert parameters == {"model": "owner/model", "revision": "abc123", "max_new_tokens": "64"}
    assert set(texts) == {"config.pbtxt", "1/.keep"}
    _, parameters, _ = written(
        CLASSIFIER,
        "cuda:1",
        tmp_path / "m",
        device="cuda:1",
        dtype="float16",
        task="text-classification",
        trusts_remote_code=True,
    )
    assert parameters == {
        "model": "owner/model",
        "revision": "abc123",
        "device": "cuda:1",
        "dtype": "float16",
        "task": "text-classification",
        "trust_remote_code": "true",
    }


def test_a_folder_that_was_built_goes_to_the_engine_whatever_it_was_built_from(tmp_path: Path) -> None:
    model = model_of({"model_type": "gpt_neox"}, "config.json", "engine.safetensors", "trireme_engine.json")
    made = folder_of(tmp_path / "m", model, "cpu", DeployOptions("owner/model"))
    assert parse_text(made.texts["config.pbtxt"], "config.pbtxt").backend == "llm"


@pytest.mark.parametrize(
    ("wishes", "told"),
    [
        (
            {"is_ejected": True},
            "--eject: .* was written by 'trireme build', .* a model.py loads models with",
        ),
        ({"backend": "transformers"}, "--backend transformers: .* Leave --backend transformers out"),
    ],
)
def test_a_folder_that_was_built_is_served_by_nobody_else(tmp_path: Path, wishes: dict[str, Any], told: str) -> None:
    model = model_of(CAUSAL, "config.json", "engine.safetensors", "trireme_engine.json")
    with pytest.raises(DeployError, match=told):
        folder_of(tmp_path / "m", model, "cpu", DeployOptions("owner/model", **wishes))


def test_language_models_go_to_the_engine_that_knows_them(tmp_path: Path) -> None:
    message, parameters, texts = written(CAUSAL, "cpu", tmp_path / "m")
    assert (message.backend, message.max_batch_size) == ("llm", 0)
    assert parameters == {"model": "owner/model", "revision": "abc123"}
    assert set(texts) == {"config.pbtxt", "1/.keep"}
    _, parameters, _ = written(
        CAUSAL, "cuda:1", tmp_path / "m", device="cuda:1", dtype="float16", batch_size=4, max_new_tokens=7
    )
    assert parameters == {
        "model": "owner/model",
        "revision": "abc123",
        "device": "cuda:1",
        "dtype": "float16",
        "max_new_tokens": "7",
        "max_sequences": "4",
    }
    _, parameters, _ = written(CAUSAL, "cpu", tmp_path / "m", batch_size=8, max_new_tokens=64)
    assert (parameters["max_sequences"], parameters["max_new_tokens"]) == ("8", "64")  # as others have it by themselves


@pytest.mark.parametrize(
    ("changes", "device", "wishes", "backend"),
    [
        ({}, "cpu", {"task": "text-generation"}, "llm"),
        ({}, "cpu", {"task": "feature-extraction"}, "transformers"),
        ({}, "cpu", {"backend": "transformers"}, "transformers"),
        ({}, "cpu", {"trusts_remote_code": True}, "transformers"),
        ({}, "hpu", {}, "transformers"),
        ({"quantization_config": {}}, "cuda", {}, "transformers"),
        ({"architectures": ["BloomForCausalLM"]}, "cpu", {}, "llm"),
        ({"vision_config": {}}, "cpu", {}, "transformers"),
        ({"quantization_config": {}}, "cpu", {"backend": "llm"}, "llm"),
        ({"architectures": None}, "cpu", {"task": "text-generation"}, "transformers"),
    ],
)
def test_other_models_go_to_the_transformers_backend(
    tmp_path: Path, changes: dict[str, Any], device: str, wishes: dict[str, Any], backend: str
) -> None:
    assert written({**CAUSAL, **changes}, device, tmp_path / "m", **wishes)[0].backend == backend


def test_ejected_code_stands_beside_an_ordinary_configuration(tmp_path: Path) -> None:
    message, parameters, texts = written(CAUSAL, "cpu", tmp_path / "m", is_ejected=True, batch_size=4)
    assert (message.backend, message.max_batch_size) == ("python", 4)
    assert ([entry.name for entry in message.input], [entry.name for entry in message.output]) == (
        ["text_input"],
        ["text_output"],
    )
    assert message.HasField("dynamic_batching")
    assert parameters["model"] == "owner/model"
    compile(texts["1/model.py"], "model.py", "exec")
    assert max(map(len, texts["1/model.py"].splitlines())) <= 120


def test_only_text_generation_is_ejected(tmp_path: Path) -> None:
    told = "--eject writes a model.py for text-generation alone, .* is BertForSequenceClassification"
    with pytest.raises(DeployError, match=told):
        written(CLASSIFIER, "cpu", tmp_path / "m", is_ejected=True)


def test_deploying_again_keeps_what_was_changed_and_restores_what_is_gone(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "m", model_of(CAUSAL), "cpu", DeployOptions("owner/model"))
    config = tmp_path / "m" / "config.pbtxt"
    folder.check_name(is_overwriting=False)
    assert folder.write(is_overwriting=False).told.startswith("wrote ")
    assert "nothing had to be written" in folder.write(is_overwriting=False).told
    edited = config.read_text() + "# mine\n"
    config.write_text(edited)
    (tmp_path / "m/1/.keep").unlink()
    folder.check_name(is_overwriting=False)
    again = folder.write(is_overwriting=False)
    assert "kept as it is: config.pbtxt" in again.told
    assert again.warning is None, "the options are the same"
    assert config.read_text() == edited
    assert (tmp_path / "m/1/.keep").exists()
    folder.write(is_overwriting=True)
    assert config.read_text() == folder.texts["config.pbtxt"]


def test_what_nobody_edited_follows_the_options_and_what_was_edited_does_not(tmp_path: Path) -> None:
    first = folder_of(tmp_path / "m", model_of(OTHER_CAUSAL), "cpu", DeployOptions("owner/model"))
    other = folder_of(tmp_path / "m", model_of(OTHER_CAUSAL), "cpu", DeployOptions("owner/model", dtype="float16"))
    config = tmp_path / "m" / "config.pbtxt"
    first.write(is_overwriting=False)
    written = other.write(is_overwriting=False)
    assert (written.told, written.warning) == (f"'{tmp_path}/m' is deployed already; wrote anew {config}", None)
    assert config.read_text() == other.texts["config.pbtxt"]
    config.write_text(config.read_text().replace("max_batch_size: 8", "max_batch_size: 2"))
    edited = config.read_text()
    written = first.write(is_overwriting=False)
    assert written.warning == (
        f"'{config}' has been edited and was kept, so options of this command that differ from it have no effect; "
        "--overwrite replaces it"
    )
    assert config.read_text() == edited


def test_code_that_was_ejected_is_not_put_out_of_use(tmp_path: Path) -> None:
    options = DeployOptions("owner/model")
    folder_of(tmp_path, model_of(CAUSAL), "cpu", replace(options, is_ejected=True)).write(is_overwriting=False)
    written = folder_of(tmp_path, model_of(CAUSAL), "cpu", options).write(is_overwriting=False)
    assert written.warning is not None
    assert 'backend: "python"' in (tmp_path / "config.pbtxt").read_text()


@pytest.mark.parametrize(
    ("config", "wishes", "is_chat"),
    [
        (OTHER_CAUSAL, {}, True),
        (CAUSAL, {"backend": "transformers"}, True),
        (CAUSAL, {"uses_chat_template": False}, False),
        (CAUSAL, {"is_ejected": True}, False),
        (CLASSIFIER, {}, False),
        (CLASSIFIER, {"task": "text-generation"}, True),
        (CAUSAL, {"task": "feature-extraction"}, False),
    ],
)
def test_a_chat_template_is_used_where_the_model_writes(
    tmp_path: Path, config: dict[str, Any], wishes: dict[str, Any], is_chat: bool
) -> None:
    model = model_of(config, has_chat_template=True)
    made = folder_of(tmp_path, model, "cpu", DeployOptions("owner/model", **wishes))
    assert parameters_of(made.texts["config.pbtxt"]).get("chat") == ("true" if is_chat else None)


@pytest.mark.parametrize(
    ("file", "wishes", "is_chat"),
    [
        ("chat_template.json", {}, True),
        ("chat_template.jinja", {}, True),
        ("chat_template.json", {"uses_chat_template": False}, False),
        ("chat_template.json", {"task": "image-text-to-text"}, True),
        ("tokenizer_config.json", {}, False),
    ],
)
def test_a_model_that_sees_converses_by_the_template_of_its_processor(
    tmp_path: Path, file: str, wishes: dict[str, Any], is_chat: bool
) -> None:
    config = {"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "vision_config": {}}
    model = model_of(config, file, has_chat_template=True)
    made = folder_of(tmp_path, model, "cpu", DeployOptions("owner/model", **wishes))
    assert parameters_of(made.texts["config.pbtxt"]).get("chat") == ("true" if is_chat else None)


@pytest.mark.parametrize(
    ("file", "content", "is_chat"),
    [
        ("chat_template.jinja", "{{ messages }}", True),
        ("tokenizer_config.json", '{"chat_template": "{{ messages }}"}', True),
        ("tokenizer_config.json", '{"chat_template": null}', False),
        ("tokenizer_config.json", "{", False),
    ],
)
def test_a_chat_template_is_found_in_the_files(tmp_path: Path, file: str, content: str, is_chat: bool) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CAUSAL))
    (tmp_path / file).write_text(content)
    assert read_folder(tmp_path, "m", "this folder").has_chat_template is is_chat


OWN = "own.Own"


@pytest.mark.parametrize(
    ("architecture", "auto_map", "is_writing"),
    [
        ("OwnModel", {"AutoConfig": OWN, "AutoModelForCausalLM": "own.OwnModel"}, True),
        ("OwnModel", {"AutoModel": OWN, "AutoModelForCausalLM": OWN}, True),
        ("OwnModel", {"AutoModel": "own.OwnModel", "AutoModelForCausalLM": OWN}, False),
        ("OwnModel", {"AutoTokenizer": [OWN, None], "AutoModel": OWN}, False),
    ],
)
def test_a_model_with_code_of_its_own_is_known_by_the_class_that_loads_it(
    architecture: str, auto_map: dict[str, Any], is_writing: bool
) -> None:
    assert is_causal(model_of({"architectures": [architecture], "auto_map": auto_map})) is is_writing


def test_the_name_of_another_model_is_not_taken_away(tmp_path: Path) -> None:
    folder_of(tmp_path / "m", model_of(CAUSAL), "cpu", DeployOptions("owner/model")).write(is_overwriting=False)
    other = folder_of(tmp_path / "m", model_of(CAUSAL, reference="owner/other"), "cpu", DeployOptions("owner/other"))
    with pytest.raises(NameTakenError, match="for 'owner/model': choose another --name"):
        other.check_name(is_overwriting=False)
    other.check_name(is_overwriting=True)
    (tmp_path / "m/config.pbtxt").write_text('backend: "python"')
    with pytest.raises(NameTakenError, match="was not made by this command"):
        other.check_name(is_overwriting=False)


def test_tasks_are_those_of_the_backend() -> None:
    assert [canonical_task(task, "m") for task in TASKS] == list(TASKS)
    assert checked_task("ner") == "ner"
    with pytest.raises(DeployError, match="Did you mean 'text-generation'"):
        checked_task("text-generatoin")


def test_files_that_are_nested_too_deeply_are_told_or_left_out(tmp_path: Path) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    (tmp_path / "config.json").write_text(deep)
    with pytest.raises(ModelNotUsableError, match=r"config\.json': it is nested too deeply"):
        read_folder(tmp_path, "m", "this folder")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer_config.json").write_text(deep)
    (tmp_path / "model.safetensors.index.json").write_text(deep)
    model = read_folder(tmp_path, "m", "this folder")
    assert (model.has_chat_template, model.indexed) == (False, frozenset())
    (tmp_path / "config.json").unlink()
    (tmp_path / "adapter_config.json").write_text(deep)
    with pytest.raises(ModelNotUsableError, match="cannot be served"):
        read_folder(tmp_path, "m", "this folder")
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(struct.pack("<Q", len(deep)) + deep.encode())
    with pytest.raises(ModelNotUsableError, match="is not a complete safetensors file: it is nested too deeply"):
        read_header(weights)
