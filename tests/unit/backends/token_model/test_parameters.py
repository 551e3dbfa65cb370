"""Parameters of the old backends: which folder is meant, and for how many ranks."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.python.worker_device import DEVICE_VARIABLE
from trireme.backends.token_model.parameters import TokenSettings, read_token_settings
from trireme.llm.models.checkpoint import CheckpointError

PARTED = "model.layers.0.attention.query_key_value.weight"


def read(folder: Path, **parameters: str) -> TokenSettings:
    given = {key: {"string_value": value} for key, value in parameters.items()}
    place = {
        "model_repository": str(folder),
        "model_version": "1",
        "model_instance_kind": "CPU",
    }  # as their files have it
    return read_token_settings({"name": "m", "parameters": given}, place, nullcontext)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model whose version has checkpoints for one and for four ranks."""
    for ranks in (1, 4):
        folder = tmp_path / "m" / "1" / f"{ranks}-gpu"
        folder.mkdir(parents=True)
        (folder / "config.ini").write_text("[gptneox]\n")
        for rank in range(ranks):
            (folder / f"{PARTED}.{rank}.bin").touch()
    return tmp_path / "m"


@pytest.mark.parametrize("ranks", ["1", "4"])
def test_the_checkpoint_for_so_many_ranks_is_taken(model: Path, ranks: str) -> None:
    assert read(model, tensor_para_size=ranks).engine.folder.name == f"{ranks}-gpu"
    assert read(model).engine.folder.name == "1-gpu"


@pytest.mark.parametrize(
    ("ranks", "named", "words"),
    [
        ("2", "4-gpu", "is a checkpoint for 4 ranks, but 2 are asked for; set tensor_para_size to 4, or convert"),
        ("4", "1-gpu", "is a checkpoint for one rank, but 4 are asked for; set tensor_para_size to 1"),
        ("2", "", "is a checkpoint for one rank, but 2 are asked for"),
    ],
)
def test_a_checkpoint_for_another_number_of_ranks_is_refused(model: Path, ranks: str, named: str, words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        read(model, tensor_para_size=ranks, model_checkpoint_path=named)


@pytest.mark.parametrize("ranks", ["0", "two"])
def test_a_number_of_ranks_that_is_none_is_refused(model: Path, ranks: str) -> None:
    with pytest.raises(ModelLoadError, match="'tensor_para_size' must be a whole number"):
        read(model, tensor_para_size=ranks)


@pytest.mark.parametrize(("placed", "taken"), [("cpu", "auto"), ("cuda:1", "cuda:1"), ("hpu:0", "hpu:0")])
def test_the_engine_looks_for_a_gpu_although_its_file_says_cpu(
    model: Path, placed: str, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DEVICE_VARIABLE, placed)
    assert read(model).engine.device == taken
    assert read(model, device=placed).engine.device == placed


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("gpt_model_type", "inflight", "must be inflight_fused_batching or inflight_batching or V1"),
        ("batch_scheduler_policy", "evict", "must be guaranteed_no_evict or max_utilization"),
        ("data_type", "fp8", "must be fp32 or fp16 or bf16, found 'fp8'"),
        ("max_beam_width", "0", "must be a whole number of at least 1, found '0'"),
        ("exclude_input_in_output", "maybe", "must be true or false"),
        ("max_num_sequences", "many", "must be a whole number"),
        ("kv_cache_free_gpu_mem_fraction", "1.5", "must be a number above 0 and at most 1"),
        ("enable_kv_cache_reuse", "maybe", "must be true or false"),
        ("max_tokens_in_paged_kv_cache", "-1", "must be a whole number"),
    ],
)
def test_a_parameter_that_cannot_be_followed_is_told_by_its_own_name(
    model: Path, name: str, value: str, words: str
) -> None:
    with pytest.raises(ModelLoadError, match=f"parameter '{name}'( of model 'm')? {words}"):
        read(model, **{name: value})


def test_parameters_of_in_flight_batching_are_followed(model: Path) -> None:
    found = read(
        model,
        gpt_model_type="V1",
        max_beam_width="2",
        max_num_sequences="7",
        max_tokens_in_paged_kv_cache="2560",
        enable_kv_cache_reuse="FALSE",
        exclude_input_in_output="TRUE",
    )
    options = found.engine.options
    assert (options.max_sequences, options.cache_tokens, options.has_prefix_cache) == (7, 2560, False)
    assert (found.max_beams, found.has_prompt) == (2, False)
    assert (read(model).max_beams, read(model).engine.options.cache_tokens) == (None, None)


@pytest.mark.parametrize(("word", "dtype"), [("fp16", "float16"), ("fp32", "float32"), ("bf16", "bfloat16")])
def test_the_type_of_fastertransformer_is_what_a_gpu_computes_in(model: Path, word: str, dtype: str) -> None:
    found = read(model, data_type=word)
    assert (found.gpu_dtype, found.engine.dtype) == (dtype, "auto")
    assert read(model).gpu_dtype == "auto"


def test_parameters_without_a_meaning_are_named(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        read(
            model, enable_trt_overlap="true", engine_dirr="x", max_beam_width="${max_beam_width}", tensor_para_size="1"
        )
    assert "has parameters without a meaning here: enable_trt_overlap, engine_dirr" in caplog.text


def test_the_part_of_the_free_memory_is_the_caches_alone(model: Path) -> None:
    options = read(model, kv_cache_free_gpu_mem_fraction="0.5").engine.options
    assert (options.cache_share, options.memory_share) == (0.5, 0.9)
    assert read(model).engine.options.cache_share is None
    with pytest.raises(ModelLoadError, match=r"'kv_cache_free_gpu_mem_fraction' of model 'm' must be a number above 0"):
        read(model, kv_cache_free_gpu_mem_fraction="1.5")


def test_adapters_are_found_by_either_name_where_peft_has_saved_them(model: Path) -> None:
    peft = model / "loras" / "3"
    peft.mkdir(parents=True)
    (peft / "adapter_config.json").write_text("{}")
    (peft / "model.lora_weights.npy").touch()  # beside them it does no harm
    for parameter in ("lora_prefetch_dir", "adapters"):
        options = read(model, max_adapters="2", **{parameter: "loras"}).engine.options
        assert (options.adapters, options.max_adapters) == (model / "loras", 2)
    with pytest.raises(ModelLoadError, match="parameter 'lora_prefetch_dir' names the folder 'gone'"):
        read(model, lora_prefetch_dir="gone")


def test_an_adapter_that_was_converted_is_refused_with_what_to_put_there(model: Path) -> None:
    converted = model / "loras" / "1"
    converted.mkdir(parents=True)
    (converted / "model.lora_weights.npy").touch()
    with pytest.raises(ModelLoadError, match=r"loras/1' has an adapter that was converted .* put the files of peft"):
        read(model, lora_prefetch_dir="loras")


@pytest.mark.parametrize(("text", "words"), [("{", "is not JSON"), ("[]", "holds list"), ("[" * 10**5, "is not JSON")])
def test_a_damaged_config_is_named_in_place_of_a_missing_checkpoint(tmp_path: Path, text: str, words: str) -> None:
    folder = tmp_path / "m" / "1" / "llama"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=rf"llama/config.json {words}"):
        read(tmp_path / "m", gpt_model_path="llama")
