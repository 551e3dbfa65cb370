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
from trireme.llm.models.fastertransformer.config_file import CONFIG_FILE
from trireme.llm.models.fastertransformer.reader import check_ranks

log = logging.getLogger(__name__)

_FOLDERS = ("engine_dir", "gpt_model_path", "model_checkpoint_path")
_MEANINGS = {
    "max_num_sequences": "max_sequences",
    "tensor_para_size": "tensor_parallel",
    "kv_cache_free_gpu_mem_fraction": "memory_share",
    "enable_kv_cache_reuse": "prefix_cache",
}
"""By an old backend's name: the llm backend's."""
_OWN = (
    "device", "executor", "dtype", "max_sequences", "max_waiting", "max_step_tokens", "max_length", "block_size",
    "cache_bytes", "kv_cache_dtype", "memory_share", "prefix_cache", "step_timeout_s", "graphs", "tensor_parallel",
    "speculation", "speculation_tokens", "draft_model", "draft_cache_bytes",
)  # fmt: skip
_TRUE, _FALSE = ("true", "1"), ("false", "0")
_POLICIES = ("guaranteed_no_evict", "max_utilization")


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """One model's."""

    engine: Settings
    has_prompt: bool
    """Whether answers begin with their prompts."""


def read_token_settings(
    config: Mapping[str, Any], args: Mapping[str, str], around_answers: Callable[[], AbstractContextManager[None]]
) -> TokenSettings:
    """Raises ModelLoadError with the parameter's name. Parameters without a meaning here are let be."""
    given = {key: entry.get("string_value", "") for key, entry in config.get("parameters", {}).items()}
    given = {key: value for key, value in given.items() if value and "${" not in value}  # templates left as they are
    policy = given.get("batch_scheduler_policy", _POLICIES[0])
    if policy not in _POLICIES:
        raise ModelLoadError(f"parameter 'batch_scheduler_policy' must be {' or '.join(_POLICIES)}, found '{policy}'")
    named = next((given[key] for key in _FOLDERS if key in given), "")
    ranks = _ranks(given)
    _tell_of_stages(config["name"], given)
    folder = find_checkpoint(named, Path(args["model_repository"]), args["model_version"], ranks)
    if ranks is not None and (folder / CONFIG_FILE).is_file():
        check_ranks(folder, ranks)
    meant = {_MEANINGS[key]: value for key, value in given.items() if key in _MEANINGS}
    meant |= {key: given[key] for key in _OWN if key in given}
    parameters = {key: {"string_value": value} for key, value in {**meant, "model": str(folder)}.items()}
    engine = read_settings(
        {"name": config["name"], "parameters": parameters}, args, around_answers, self_placed_kinds=SELF_PLACED
    )
    return TokenSettings(engine, not _flag(given, "exclude_input_in_output"))


def _flag(given: Mapping[str, str], key: str) -> bool:
    word = given.get(key, "false").lower()
    if word not in _TRUE + _FALSE:
        raise ModelLoadError(f"parameter '{key}' must be true or false, found '{given[key]}'")
    return word in _TRUE


def _ranks(given: Mapping[str, str]) -> int | None:
    """Of tensor parallelism; None where nothing is said."""
    text = given.get("tensor_para_size")
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise ModelLoadError(f"parameter 'tensor_para_size' must be a whole number of at least 1, found '{text}'")
    return int(text)


def _tell_of_stages(name: str, given: Mapping[str, str]) -> None:
    stages = given.get("pipeline_para_size", "1")
    if stages != "1":
        log.warning(
            "model '%s' has pipeline_para_size %s: all layers are in one stage, as if that were 1", name, stages
        )
