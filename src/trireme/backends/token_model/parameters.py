"""The parameters of the old backends in the words of the llm backend's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.llm.settings import SELF_PLACED, Settings, read_settings
from trireme.backends.token_model.checkpoint_folder import find_checkpoint
from trireme.huggingface.adapters import adapter_folders
from trireme.llm.models.fastertransformer.config_file import CONFIG_FILE
from trireme.llm.models.fastertransformer.reader import check_ranks

log = logging.getLogger(__name__)

_FOLDERS = ("engine_dir", "gpt_model_path", "model_checkpoint_path")
_MEANINGS = {
    "max_num_sequences": "max_sequences",
    "tensor_para_size": "tensor_parallel",
    "kv_cache_free_gpu_mem_fraction": "cache_share",
    "enable_kv_cache_reuse": "prefix_cache",
    "max_tokens_in_paged_kv_cache": "cache_tokens",
    "lora_prefetch_dir": "adapters",
}
"""By an old backend's name: the llm backend's."""
_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
"""By FasterTransformer's word for a type: the engine's."""
_OWN = (
    "device", "executor", "dtype", "max_sequences", "max_waiting", "max_step_tokens", "max_length", "block_size",
    "cache_bytes", "cache_tokens", "kv_cache_dtype", "memory_share", "cache_share", "prefix_cache", "step_timeout_s",
    "graphs", "tensor_parallel", "speculation", "speculation_tokens", "draft_model", "draft_cache_bytes",
    "adapters", "max_adapters",
)  # fmt: skip
_CONVERTED_ADAPTER = "model.lora_weights.npy"
"""What TensorRT-LLM's script for adapters writes."""
_TRUE, _FALSE = ("true", "1"), ("false", "0")
_CHOICES = {
    "batch_scheduler_policy": ("guaranteed_no_evict", "max_utilization"),
    "gpt_model_type": ("inflight_fused_batching", "inflight_batching", "V1", "v1"),
    "data_type": tuple(_DTYPES),
}
"""Parameters of one word; the first two change nothing here, where all requests run together."""
_READ = {*_FOLDERS, *_MEANINGS, *_OWN, *_CHOICES, "max_beam_width", "exclude_input_in_output", "pipeline_para_size"}


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """One model's."""

    engine: Settings
    has_prompt: bool
    """Whether answers begin with their prompts."""
    max_beams: int | None
    """How many beams a request may ask for; None: as many texts as can be written."""
    gpu_dtype: str
    """What a GPU computes in where the parameter `dtype` does not say: "auto", or one of the engine's."""


def read_token_settings(
    config: Mapping[str, Any], args: Mapping[str, str], around_answers: Callable[[], AbstractContextManager[None]]
) -> TokenSettings:
    """Raises ModelLoadError with the parameter's name. Parameters without a meaning here are named in the log."""
    given = {key: entry.get("string_value", "") for key, entry in config.get("parameters", {}).items()}
    given = {key: value for key, value in given.items() if value and "${" not in value}  # templates left as they are
    for key, words in _CHOICES.items():
        if given.get(key, words[0]) not in words:
            raise ModelLoadError(f"parameter '{key}' must be {' or '.join(words)}, found '{given[key]}'")
    named = next((given[key] for key in _FOLDERS if key in given), "")
    ranks = _whole(given, "tensor_para_size")
    _tell_of_stages(config["name"], given)
    folder = find_checkpoint(named, Path(args["model_repository"]), args["model_version"], ranks)
    if ranks is not None and (folder / CONFIG_FILE).is_file():
        check_ranks(folder, ranks)
    engine = _engine_settings(config["name"], given, folder, args, around_answers)
    _check_adapters(engine.options.adapters)
    if others := sorted(given.keys() - _READ):
        log.info("model '%s' has parameters without a meaning here: %s", config["name"], ", ".join(others))
    return TokenSettings(
        engine,
        has_prompt=not _flag(given, "exclude_input_in_output"),
        max_beams=_whole(given, "max_beam_width"),
        gpu_dtype=_DTYPES.get(given.get("data_type", ""), "auto"),
    )


def _engine_settings(
    name: str,
    given: Mapping[str, str],
    folder: Path,
    args: Mapping[str, str],
    around_answers: Callable[[], AbstractContextManager[None]],
) -> Settings:
    """The llm backend's; what it refuses is told by the name that the configuration has."""
    meant = {_MEANINGS[key]: value for key, value in given.items() if key in _MEANINGS}
    own = {key: given[key] for key in _OWN if key in given}
    parameters = {key: {"string_value": value} for key, value in {**meant, **own, "model": str(folder)}.items()}
    called = {other: f"parameter '{key}'" for key, other in _MEANINGS.items() if key in given and other not in own}
    config = {"name": name, "parameters": parameters}
    return read_settings(config, args, around_answers, self_placed_kinds=SELF_PLACED, called=called)


def _check_adapters(folder: Path | Mapping[str, Path] | None) -> None:
    if not isinstance(folder, Path):
        return
    converted = {path.parent.name for path in folder.glob(f"*/{_CONVERTED_ADAPTER}")} - adapter_folders(folder).keys()
    if converted:
        name = min(converted)
        raise ModelLoadError(
            f"'{folder / name}' has an adapter that was converted for TensorRT-LLM ({_CONVERTED_ADAPTER}), which is "
            "not read: put the files of peft there that it was made of (adapter_config.json, adapter_model.safetensors)"
        )


def _flag(given: Mapping[str, str], key: str) -> bool:
    word = given.get(key, "false").lower()
    if word not in _TRUE + _FALSE:
        raise ModelLoadError(f"parameter '{key}' must be true or false, found '{given[key]}'")
    return word in _TRUE


def _whole(given: Mapping[str, str], key: str) -> int | None:
    """A number of at least 1; None where nothing is said."""
    text = given.get(key)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise ModelLoadError(f"parameter '{key}' must be a whole number of at least 1, found '{text}'")
    return int(text)


def _tell_of_stages(name: str, given: Mapping[str, str]) -> None:
    stages = given.get("pipeline_para_size", "1")
    if stages != "1":
        log.warning(
            "model '%s' has pipeline_para_size %s: all layers are in one stage, as if that were 1", name, stages
        )
