"""`model.json`: what is read of it, and what is wrong with it."""

from __future__ import annotations

import importlib.util
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.python.worker_device import DEVICE_VARIABLE
from trireme.backends.vllm.engine_file import read_engine_file, read_own_settings
from trireme.backends.vllm.vllm_engine import VllmEngine


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "m" / "1" / "weights").mkdir(parents=True)
    (tmp_path / "m" / "1" / "weights" / "config.json").write_text("{}")
    return tmp_path / "m"


def settings(folder: Path, parameters: dict[str, str] | None = None, /, **arguments: Any) -> Any:
    given = {key: {"string_value": value} for key, value in (parameters or {}).items()}
    place = {"model_repository": str(folder), "model_version": "1", "model_instance_kind": "CPU"}
    config = {"name": "m", "parameters": given}
    return read_own_settings({"model": "weights", **arguments}, config, place, nullcontext)


def test_arguments_have_their_meaning(model: Path) -> None:
    found = settings(
        model, {"max_waiting": "7", "REPORT_CUSTOM_METRICS": "yes"}, dtype="half", max_model_len=99, max_num_seqs=3,
        gpu_memory_utilization=0.25, enable_prefix_caching=False, enforce_eager=True, block_size=32, seed=1,
    )  # fmt: skip
    options = found.options
    assert (found.folder.name, found.dtype) == ("weights", "float16")
    assert (options.max_length, options.max_sequences, options.memory_share) == (99, 3, 0.25)
    assert options.cache_share is None
    assert (options.has_prefix_cache, options.has_graphs, options.block_size) == (False, False, 32)
    assert options.max_waiting == 7


def test_adapters_are_those_of_their_file_and_computed_on_one_rank(model: Path) -> None:
    place = {"model_repository": str(model), "model_version": "1", "model_instance_kind": "CPU"}
    arguments = {"model": "weights", "enable_lora": True}
    folders = {"sql": model / "sql"}
    config = {"name": "m", "parameters": {"max_adapters": {"string_value": "3"}}}
    found = read_own_settings(arguments, config, place, nullcontext, folders).options
    assert (found.adapters, found.max_adapters) == (folders, 3)
    words = "'enable_lora' in model.json cannot be followed on 2 ranks.*set 'tensor_parallel_size' in model.json to 1"
    with pytest.raises(ModelLoadError, match=words):
        read_own_settings({**arguments, "tensor_parallel_size": 2}, config, place, nullcontext, folders)


def test_the_engine_looks_for_a_gpu_itself(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DEVICE_VARIABLE, "cpu")
    assert settings(model).device == "auto"
    assert settings(model, {"device": "cpu"}).device == "cpu"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"tokenizer": "another/one"}, "another/one"),
        ({"max_model_len": "many"}, "'max_model_len' in model.json of model 'm' must be a whole number"),
        ({"gpu_memory_utilization": 1.5}, "'gpu_memory_utilization' in model.json of model 'm' must be a number above"),
        ({"max_model_len": "parameter 'block_size'", "block_size": 16}, "found 'parameter 'block_size''"),
        ({"model": "nowhere"}, "there is no language model.* name their folder with 'model' in model.json"),
    ],
)
def test_what_cannot_be_followed_is_named(
    model: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], words: str
) -> None:
    monkeypatch.setattr("trireme.backends.llm.settings.is_hub_id", lambda name: False)
    with pytest.raises(ModelLoadError, match=words):
        settings(model, **arguments)


@pytest.mark.parametrize(("text", "words"), [("{", "is no JSON"), ("[]", "must be a JSON object"), ("{}", "under")])
def test_a_file_that_names_no_model_is_refused(model: Path, text: str, words: str) -> None:
    with pytest.raises(ModelLoadError, match=r"there is no '.*model\.json'"):
        read_engine_file(model, "1")
    (model / "1" / "model.json").write_text(text)
    with pytest.raises(ModelLoadError, match=words):
        read_engine_file(model, "1")
    (model / "1" / "model.json").write_text(json.dumps({"model": "gpt2"}))
    assert read_engine_file(model, "1") == {"model": "gpt2"}


def test_a_file_that_cannot_be_read_is_not_said_to_be_missing(model: Path) -> None:
    path = model / "1" / "model.json"
    for text in ("[" * 100_000, '{"a":' * 5_000 + "1" + "}" * 5_000):
        path.write_text(text)
        with pytest.raises(ModelLoadError, match="is no JSON: it is nested too deeply"):
            read_engine_file(model, "1")
    path.unlink()
    path.mkdir()
    with pytest.raises(ModelLoadError, match=r"model\.json' cannot be read: Is a directory"):
        read_engine_file(model, "1")


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed here")
def test_vllm_has_to_be_installed_where_it_is_asked_for() -> None:
    with pytest.raises(ModelLoadError, match="asks for vLLM, which is not installed here"):
        VllmEngine({"model": "gpt2"}, {})
