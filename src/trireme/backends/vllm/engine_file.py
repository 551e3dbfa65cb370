"""`model.json`: vLLM's arguments, and what they mean to our engine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.llm.settings import SELF_PLACED, Settings, read_settings
from trireme.backends.vllm import lora_file
from trireme.backends.vllm.json_file import read_json_file
from trireme.huggingface.adapters import PARAMETER as ADAPTERS

log = logging.getLogger(__name__)

FILE_NAME = "model.json"
_MEANINGS = {
    "model": "model",
    "revision": "revision",
    "dtype": "dtype",
    "max_model_len": "max_length",
    "gpu_memory_utilization": "memory_share",
    "max_num_seqs": "max_sequences",
    "max_num_batched_tokens": "max_step_tokens",
    "block_size": "block_size",
    "enable_prefix_caching": "prefix_cache",
    "tensor_parallel_size": "tensor_parallel",
    "kv_cache_dtype": "kv_cache_dtype",
}
"""By vLLM's name: the llm backend's parameter."""
_DTYPES = {"half": "float16", "float": "float32"}
_RANKS = ("pipeline_parallel_size", "data_parallel_size")
_QUIET = frozenset({
    "disable_log_requests", "disable_log_stats", "enable_log_requests", "enforce_eager", "swap_space", "seed",
    "trust_remote_code", "quantization", "enable_chunked_prefill", lora_file.FLAG, "max_lora_rank", *_RANKS,
})  # fmt: skip
"""Without a meaning here, or with one that is looked at apart."""
_OWN = (
    "device", "executor", "max_waiting", "cache_bytes", "step_timeout_s", "graphs", "batch_invariant", "warm_up",
    "max_adapters",
)  # fmt: skip
"""The llm backend's parameters that a configuration may have beside the file."""


def read_engine_file(model_dir: Path, version: str) -> dict[str, Any]:
    """The arguments; raises ModelLoadError."""
    path = model_dir / version / FILE_NAME
    found = read_json_file(path, if_missing=': it names the model, as in {"model": "gpt2"}')
    if not isinstance(found, dict) or not isinstance(found.get("model"), str) or not found["model"]:
        raise ModelLoadError(f"'{path}' must be a JSON object with the name or the folder of a model under \"model\"")
    return found


def read_own_settings(
    arguments: Mapping[str, Any],
    config: Mapping[str, Any],
    args: Mapping[str, str],
    around_texts: Callable[[], AbstractContextManager[None]],
    adapters: Mapping[str, Path] | None = None,
) -> Settings:
    """For our engine, with these adapters by name; raises ModelLoadError with the name of what cannot be followed."""
    name = config["name"]
    _check(name, arguments)
    given = {key: entry.get("string_value", "") for key, entry in config.get("parameters", {}).items()}
    meant = {_MEANINGS[key]: _word(value) for key, value in arguments.items() if key in _MEANINGS and value is not None}
    meant["dtype"] = _DTYPES.get(meant.get("dtype", "auto"), meant.get("dtype", "auto"))
    if meant.get("kv_cache_dtype") == "fp8_e4m3":
        meant["kv_cache_dtype"] = "fp8"
    meant |= {key: given[key] for key in _OWN if key in given}
    if arguments.get("enforce_eager"):
        meant.setdefault("graphs", "false")
    own = {"name": name, "parameters": {key: {"string_value": value} for key, value in meant.items()}}
    called = {meaning: f"'{key}' in {FILE_NAME}" for key, meaning in _MEANINGS.items() if key in arguments}
    called[ADAPTERS] = f"'{lora_file.FLAG}' in {FILE_NAME}"
    return read_settings(own, args, around_texts, self_placed_kinds=SELF_PLACED, called=called, adapters=adapters)


def _check(name: str, arguments: Mapping[str, Any]) -> None:
    tokenizer = arguments.get("tokenizer")
    if tokenizer not in (None, arguments["model"]):
        raise ModelLoadError(
            f"model '{name}' has a tokenizer '{tokenizer}' in {FILE_NAME}: put its files to the model's"
        )
    for key in _RANKS:
        if arguments.get(key, 1) not in (1, "1", None):
            log.warning("model '%s' has %s %s: it runs on one device all the same", name, key, arguments[key])
    others = sorted(arguments.keys() - _MEANINGS.keys() - _QUIET - {"tokenizer"})
    if others:
        log.info("model '%s': %s of %s have no meaning here and are let be", name, ", ".join(others), FILE_NAME)


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
