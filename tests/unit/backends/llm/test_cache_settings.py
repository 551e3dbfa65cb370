"""How a model's configuration asks for a smaller cache, for ranks and for a device, or leaves that to others."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.llm.settings import Settings, parameter_problems, read_settings
from trireme.backends.python.worker_device import DEVICE_VARIABLE
from trireme.llm.executors.ranks.mpi import COUNT_VARIABLE, FOLDER_VARIABLE
from trireme.llm.options import CacheType, EngineOptions


def options(folder: Path, **parameters: str) -> EngineOptions:
    return settings(folder, "CPU", **parameters).options


def settings(folder: Path, kind: str, **parameters: str) -> Settings:
    (folder / "1").mkdir(exist_ok=True)
    (folder / "1" / "config.json").write_text("{}")
    given = {key: {"string_value": value} for key, value in parameters.items()}
    args = {"model_repository": str(folder), "model_version": "1", "model_instance_kind": kind}
    return read_settings({"name": "writer", "parameters": given}, args, nullcontext)


def test_the_cache_is_of_eight_bits_where_that_is_asked_for(tmp_path: Path) -> None:
    assert options(tmp_path).cache_type is CacheType.AUTO
    assert options(tmp_path, kv_cache_dtype="fp8").cache_type is CacheType.FP8
    with pytest.raises(ModelLoadError, match="'kv_cache_dtype' of model 'writer' must be auto or fp8, found 'int4'"):
        options(tmp_path, kv_cache_dtype="int4")


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("kv_cache_dtype", "fp8", "kv_cache_dtype fp8 needs PyTorch"),
        ("batch_invariant", "true", "batch_invariant needs the kernels"),
        ("tensor_parallel", "2", "tensor_parallel 2 needs PyTorch"),
        ("dtype", "bfloat16", "numpy computes in float32 alone, not in bfloat16"),
    ],
)
def test_what_numpy_does_not_do_is_refused_in_the_check_and_before_a_model_is_loaded(
    tmp_path: Path, key: str, value: str, told: str
) -> None:
    given = {"executor": "numpy", key: value}
    with pytest.raises(ModelLoadError, match=f"parameter 'executor' is 'numpy': {told}"):
        settings(tmp_path, "CPU", **given)
    (problem,) = parameter_problems("writer", given, tmp_path, "1")
    assert told in problem
    assert parameter_problems("writer", {"executor": "numpy", "dtype": "float32"}, tmp_path, "1") == []
    assert parameter_problems("writer", {key: value}, tmp_path, "1") == []


def test_ranks_are_the_folders_matter_unless_somebody_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert options(tmp_path).ranks is None
    assert options(tmp_path, tensor_parallel="2").ranks == 2
    monkeypatch.setenv(COUNT_VARIABLE, "4")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    assert options(tmp_path).ranks == 4


def test_adapters_are_refused_on_several_ranks_before_a_model_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "adapters").mkdir()
    assert options(tmp_path, adapters="adapters", tensor_parallel="1").adapters == tmp_path / "adapters"
    words = "parameter 'adapters' cannot be followed on 2 ranks.*set parameter 'tensor_parallel' to 1"
    with pytest.raises(ModelLoadError, match=words):
        options(tmp_path, adapters="adapters", tensor_parallel="2")


def test_a_kind_that_leaves_the_device_to_the_model_does_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DEVICE_VARIABLE, "cpu")
    assert settings(tmp_path, "MODEL").device == "auto"
    assert settings(tmp_path, "MODEL", device="auto").device == "auto"
    assert settings(tmp_path, "MODEL", device="cpu").device == "cpu"
    assert settings(tmp_path, "CPU").device == "cpu"
    assert settings(tmp_path, "CPU", executor="numpy").device == "numpy"


@pytest.mark.parametrize("name", ["cache_bytes", "cache_tokens", "draft_cache_bytes"])
def test_a_cache_of_nothing_is_refused(tmp_path: Path, name: str) -> None:
    assert getattr(options(tmp_path), name) is None
    with pytest.raises(ModelLoadError, match=f"'{name}' of model 'writer' must be a whole number of at least 1"):
        options(tmp_path, **{name: "0"})


def test_an_answer_of_no_tokens_is_refused(tmp_path: Path) -> None:
    assert settings(tmp_path, "CPU").max_new_tokens is None
    assert settings(tmp_path, "CPU", max_new_tokens="3").max_new_tokens == 3
    with pytest.raises(ModelLoadError, match="'max_new_tokens' of model 'writer' must be a whole number of at least 1"):
        settings(tmp_path, "CPU", max_new_tokens="0")


def test_an_unknown_parameter_is_answered_with_the_one_that_was_meant(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"the llm backend does not know, did you mean 'max_sequences'\?$"):
        options(tmp_path, max_sequence="8")
    with pytest.raises(ModelLoadError, match=r"the llm backend does not know; it knows: adapters, .*, warm_up$"):
        options(tmp_path, colour="red")
