"""The parameters of the old backends in the words of the llm backend's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.llm.settings import Settings, read_settings
from trireme.backends.token_model.checkpoint_folder import find_checkpoint

log = logging.getLogger(__name__)

_FOLDERS = ("engine_dir", "gpt_model_path", "model_checkpoint_path")
_MEANINGS = {
    "max_num_sequences": "max_sequences",
    "kv_cache_free_gpu_mem_fraction": "memory_share",
    "enable_kv_cache_reuse": "prefix_cache",
}
"""By an old backend's name: the llm backend's."""
_OWN = (
    "device", "executor", "dtype", "max_sequences", "max_waiting", "max_step_tokens", "max_length", "block_size",
    "cache_bytes", "memory_share", "prefix_cache", "step_timeout_s", "graphs",
)  # fmt: skip
_TRUE, _FALSE = ("true", "1"), ("false", "0")
_PARALLEL = ("tensor_para_size", "pipeline_para_size")
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
    _tell_of_ranks(config["name"], given)
    policy = given.get("batch_scheduler_policy", _POLICIES[0])
    if policy not in _POLICIES:
        raise ModelLoadError(f"parameter 'batch_scheduler_policy' must be {' or '.join(_POLICIES)}, found '{policy}'")
    named = next((given[key] for key in _FOLDERS if key in given), "")
    folder = find_checkpoint(named, Path(args["model_repository"]), args["model_version"])
    meant = {_MEANINGS.get(key, key): value for key, value in given.items() if key in _MEANINGS or key in _OWN}
    parameters = {key: {"string_value": value} for key, value in {**meant, "model": str(folder)}.items()}
    engine = read_settings({"name": config["name"], "parameters": parameters}, args, around_answers)
    return TokenSettings(engine, not _flag(given, "exclude_input_in_output"))


def _flag(given: Mapping[str, str], key: str) -> bool:
    word = given.get(key, "false").lower()
    if word not in _TRUE + _FALSE:
        raise ModelLoadError(f"parameter '{key}' must be true or false, found '{given[key]}'")
    return word in _TRUE


def _tell_of_ranks(name: str, given: Mapping[str, str]) -> None:
    for key in _PARALLEL:
        if given.get(key, "1") != "1":
            log.warning(
                "model '%s' has %s %s: it runs on one device all the same, as if that were 1", name, key, given[key]
            )
