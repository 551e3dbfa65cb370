"""What a configuration may leave out, what it may choose, and what is said of one that cannot work."""

from __future__ import annotations

import json
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from payloads import text
from tiny_models import tiny_causal_lm
from tiny_task_models import task_model

from trireme.backends.transformers.tasks import TASKS, canonical_task
from trireme.core.errors import ServingError
from trireme.testing import Request

pytestmark = pytest.mark.filterwarnings("ignore")

TASKS_OF_KINDS = {
    "bert-classifier": (["text", "text_pair"], ["label", "score"]),
    "bert-entities": (["text"], ["entity", "score", "word", "start", "end"]),
    "bert-answers": (["question", "context"], ["answer", "score", "start", "end"]),
    "bert-mask": (["text"], ["token_str", "score", "token", "sequence"]),
    "bert-features": (["text"], ["features"]),
    "bert-sentences": (["text"], ["embedding"]),
    "bart": (["text_input", "stop"], ["text_output"]),
    "t5": (["text_input", "stop"], ["text_output"]),
    "vit": (["image"], ["label", "score"]),
    "yolos": (["image"], ["label", "score", "box"]),
    "whisper": (["audio"], ["text"]),
    "wav2vec2": (["audio"], ["text"]),
    "wav2vec2-classifier": (["audio"], ["label", "score"]),
}


def completed(source: Path, monkeypatch: pytest.MonkeyPatch, **fields: Any) -> dict[str, Any]:
    """The configuration as auto-complete leaves it, without loading the model."""
    from trireme.backends.python.pb_utils.model_config import ModelConfig
    from trireme.backends.transformers import model
    from trireme.backends.transformers import source as sources

    class Runtime:
        model_dir = str(source)

    monkeypatch.setattr(sources.pb_runtime, "current", lambda: Runtime)
    message = {"name": "m", "max_batch_size": 0, "input": [], "output": [], **fields}
    return model.TritonPythonModel.auto_complete_config(ModelConfig(json.dumps(message))).as_dict()


@pytest.mark.parametrize("kind", list(TASKS_OF_KINDS))
def test_the_task_follows_from_the_files(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = completed(task_model(kind), monkeypatch)
    inputs, outputs = TASKS_OF_KINDS[kind]
    assert [entry["name"] for entry in config["input"]] == inputs
    assert [entry["name"] for entry in config["output"]] == outputs
    assert config["max_batch_size"] == 32
    assert "dynamic_batching" in config


def test_a_model_is_loaded_in_the_form_in_which_its_configuration_was_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trireme.backends.transformers import model

    (tmp_path / "config.json").write_text(json.dumps({"model_type": "resnet", "architectures": ["ResNetModel"]}))
    parameters = {"task": {"string_value": "image-feature-extraction"}}
    config = completed(tmp_path, monkeypatch, parameters=parameters)
    assert config["output"][0]["dims"] == [-1, -1, -1]
    loaded_forms = []
    monkeypatch.setattr(model.completion, "check", lambda _config, form, _settings: loaded_forms.append(form))
    monkeypatch.setattr(model.pb_runtime.current(), "is_decoupled", False, raising=False)
    monkeypatch.setattr(model, "load", lambda *_: None)
    with pytest.raises(AttributeError):  # there is nothing to load
        model.TritonPythonModel().initialize({"model_config": json.dumps(config), "model_instance_kind": "CPU"})
    assert [form.outputs[0].dims for form in loaded_forms] == [(-1, -1, -1)]


def test_what_the_configuration_says_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "max_batch_size": 4,
        "dynamic_batching": {"max_queue_delay_microseconds": 7},
        "output": [{"name": "label", "data_type": "TYPE_STRING", "dims": [1]}],
    }
    config = completed(task_model("bert-classifier"), monkeypatch, **given)
    assert {name: config[name] for name in given} == given
    assert "dynamic_batching" not in completed(task_model("bert-classifier"), monkeypatch, max_batch_size=1)


def test_a_model_keeps_its_type_or_gets_the_one_that_is_asked_for(serve: Any) -> None:
    for dtype, expected in (("auto", "float32"), ("bfloat16", "bfloat16"), ("fp16", "float16")):
        model = serve(task_model("bert-classifier"), dtype=dtype)
        assert any(entry.message.endswith(f"parameters, {expected}") for entry in model.logs)
        model.infer(text=text("the ship is fast"))


def test_weights_that_the_files_do_not_have_are_warned_of(serve: Any) -> None:
    model = serve(task_model("bert-features"), task="text-classification")
    warnings = [entry.message for entry in model.logs if entry.level == "WARNING"]
    assert "2 weights of BertForSequenceClassification are not in the files" in warnings[0]
    assert "classifier.weight" in warnings[0]


def test_a_parameter_without_effect_is_warned_of(serve: Any) -> None:
    model = serve(task_model("bert-classifier"), max_new_tokens=5)
    assert any("parameter 'max_new_tokens' of model" in entry.message for entry in model.logs)


def test_every_pipeline_of_the_library_is_served() -> None:
    pipelines = pytest.importorskip("transformers.pipelines")
    for task in pipelines.SUPPORTED_TASKS:
        assert canonical_task(task, "m") in TASKS


def test_a_request_parameter_without_effect_is_warned_of_once(serve: Any) -> None:
    model = serve(task_model("bert-classifier"))
    for parameters in ({"top_k": 2, "truncatoin": True}, {"truncatoin": True, "zzz": 1}):
        model.infer_many([Request({"text": text("the ship")}, parameters=parameters)])
    warnings = [entry.message for entry in model.logs if entry.level == "WARNING"]
    assert warnings == [
        "the request parameter 'truncatoin' is no option of this task and has no effect; did you mean 'truncation'?",
        "the request parameter 'zzz' is no option of this task and has no effect; its options are: function_to_apply, "
        "top_k, truncation",
    ]


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        ("bert-classifier", {"task": "text-clasification"}, "did you mean 'text-classification'?"),
        ("bert-classifier", {"task": "make-coffee"}, "'make-coffee', which is not served"),
        ("bert-classifier", {"dtype": "int3"}, "'dtype' of model 'model_0' must be one of auto, float32"),
        ("bert-classifier", {"top_k": "many"}, "'top_k' must be a whole number, found 'many' in the configuration"),
        ("bert-classifier", {"static_shapes": "a,b"}, "must be true, false or lengths such as 128,256; found 'a,b'"),
        ("bert-classifier", {"device": "neuron:0"}, "runs compiled models only"),
        ("bart", {"task": "fill-mask"}, "has no mask token"),
        ("vit", {"task": "text-generation"}, "is not made for its task"),
    ],
)
def test_a_configuration_that_cannot_work_says_why(
    serve: Any, kind: str, parameters: dict[str, str], message: str
) -> None:
    with pytest.raises(ServingError) as caught:
        serve(task_model(kind), **parameters)
    assert message in caught.value.message


def test_folders_that_are_not_there_or_hold_no_model_are_named(serve: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ServingError, match=r"there is no folder '/not/here' for model .*; looked for '/not/here'"):
        serve("/not/here")
    with pytest.raises(ServingError, match=r"empty' of model 'model_\d' holds no config.json"):
        serve(tmp_path / "empty")
    with pytest.raises(ServingError, match="does not say what to serve; name a hub id or a folder"):
        serve("")


@pytest.fixture
def silent_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A hub that takes connections and never answers, and a cache that is empty."""
    constants = pytest.importorskip("huggingface_hub").constants
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        settings = {"ENDPOINT": url, "HF_HUB_OFFLINE": False, "HF_HUB_ETAG_TIMEOUT": 1}
        for name, value in {**settings, "HF_HUB_CACHE": str(tmp_path / "cache")}.items():
            monkeypatch.setattr(constants, name, value)
        yield url


@pytest.mark.parametrize("parameters", [{}, {"task": "text-classification"}])
def test_a_hub_that_cannot_be_reached_is_asked_once_and_the_error_says_where_the_model_was_looked_for(
    serve: Any, silent_hub: str, tmp_path: Path, parameters: dict[str, str]
) -> None:
    began = time.monotonic()
    with pytest.raises(ServingError) as caught:
        serve("nobody/nothing", **parameters)
    assert time.monotonic() - began < 10
    message = caught.value.message
    reason = f"the hub '{silent_hub}' could not be reached (no answer within 1 s, which HF_HUB_ETAG_TIMEOUT changes)"
    assert f"the files of 'nobody/nothing' for model 'model_0' could not be had: {reason}." in message
    assert f"(looked for '{tmp_path}/cache/models--nobody--nothing')" in message
    assert "'trireme deploy nobody/nothing --no-serve'" in message


def test_a_hub_that_was_not_to_be_asked_was_not(serve: Any, silent_hub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ServingError, match="was not asked, because HF_HUB_OFFLINE is set"):
        serve("nobody/nothing")


def test_a_task_that_the_architecture_does_not_tell_has_to_be_named(serve: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(task_model("bert-classifier"), tmp_path / "files")
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, "architectures": ["BertForNextSentencePrediction"]}))
    with pytest.raises(ServingError, match=r"cannot tell what task .*BertForNextSentencePrediction.*parameter 'task'"):
        serve(folder)


def test_code_of_a_models_own_runs_only_where_it_is_allowed(serve: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(task_model("bert-classifier"), tmp_path / "files")
    settings = json.loads((folder / "config.json").read_text())
    names = {"AutoConfig": "own.OwnConfig", "AutoModelForSequenceClassification": "own.OwnForSequenceClassification"}
    own = {**settings, "model_type": "own", "auto_map": names, "architectures": ["OwnForSequenceClassification"]}
    (folder / "config.json").write_text(json.dumps(own))
    (folder / "own.py").write_text(
        "from transformers import BertConfig, BertForSequenceClassification\n\n\n"
        "class OwnConfig(BertConfig):\n    model_type = 'own'\n\n\n"
        "class OwnForSequenceClassification(BertForSequenceClassification):\n    config_class = OwnConfig\n"
    )
    with pytest.raises(ServingError, match=r"brings code of its own, .*'trust_remote_code' is true"):
        serve(folder)
    serve(folder, trust_remote_code="true").infer(text=text("the ship"))


@pytest.mark.parametrize(
    ("auto_class", "name", "outputs"),
    [
        ("AutoModelForSequenceClassification", "OwnModel", ["label", "score"]),
        ("AutoModelForSequenceClassification", "AnotherName", ["label", "score"]),
        ("AutoModelForSeq2SeqLM", "OwnModel", ["text_output"]),
        ("AutoModel", "OwnModel", ["features"]),
    ],
)
def test_the_task_of_code_of_its_own_is_that_of_the_class_which_loads_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, auto_class: str, name: str, outputs: list[str]
) -> None:
    names = {"AutoConfig": "own.OwnConfig", auto_class: f"own.{name}", "AutoTokenizer": ["own.OwnTokenizer", None]}
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "own", "auto_map": names, "architectures": ["OwnModel"]})
    )
    config = completed(tmp_path, monkeypatch)
    assert [entry["name"] for entry in config["output"]] == outputs


@pytest.mark.parametrize("kind", ["opt", "llama"])  # of one the library makes an empty tokenizer, of the other none
def test_a_folder_without_a_tokenizer_is_refused(serve: Any, tmp_path: Path, kind: str) -> None:
    folder = tiny_causal_lm(tmp_path / "files", kind)
    for file in folder.glob("*token*"):
        file.unlink()
    with pytest.raises(ServingError, match=r"has no tokenizer, .* \(tokenizer.json, tokenizer_config.json\)"):
        serve(folder)


def test_a_task_that_the_architecture_has_no_class_for_is_named(serve: Any, tmp_path: Path) -> None:
    with pytest.raises(ServingError, match=r"is not made for its task: .*AutoModelForMaskedLM.*parameter 'task'"):
        serve(tiny_causal_lm(tmp_path / "files", "opt"), task="fill-mask")


def test_a_chat_needs_a_template(serve: Any, tmp_path: Path) -> None:
    with pytest.raises(ServingError, match="has no chat template, which the parameter 'chat' needs"):
        serve(tiny_causal_lm(tmp_path / "files", "llama"), chat="true")


def test_a_library_that_is_not_installed_is_named_with_its_command(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from trireme.backends.compiled import model_load

    def absent(package: str) -> Any:
        raise ModuleNotFoundError(f"No module named '{package}'", name=package)

    monkeypatch.setattr(model_load.importlib, "import_module", absent)
    with pytest.raises(ServingError, match=r"pip install -c constraints\.txt '\.\[transformers\]'"):
        serve(task_model("bert-classifier"))
    assert "transformers" in sys.modules
