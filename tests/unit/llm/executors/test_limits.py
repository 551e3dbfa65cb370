"""Limits that nothing could run within are refused with their names, and too little memory with what to do."""

from __future__ import annotations

from typing import Any

import pytest

from trireme.llm.executors.limits import limits_for
from trireme.llm.executors.port import ExecutorError
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.options import EngineOptions

SPEC = DecoderSpec("LlamaForCausalLM", 100, 64, 2, 4, 4, 16, 96, 128)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_sequences": 0}, "max_sequences must be a whole number of at least 1, found 0"),
        ({"max_step_tokens": 0}, "max_step_tokens must be a whole number of at least 1, found 0"),
        ({"block_size": 0}, "block_size must be a whole number of at least 1, found 0"),
        ({"max_length": -5}, "max_length must be a whole number of at least 1, found -5"),
        ({"max_adapters": 0}, "max_adapters must be a whole number of at least 1, found 0"),
        ({"max_waiting": -1}, "max_waiting must be a whole number of at least 0, found -1"),
        ({"memory_share": 1.5}, "memory_share must be above 0 and at most 1, found 1.5"),
        ({"cache_share": 0.0}, "cache_share must be above 0 and at most 1, found 0.0"),
    ],
)
def test_a_limit_that_nothing_runs_within_is_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        EngineOptions(**options)


def test_a_device_without_memory_for_a_cache_is_told_with_what_to_do() -> None:
    with pytest.raises(ExecutorError, match=r"the weights leave 0.00 MiB for the key/value cache.*raise memory_share"):
        limits_for(SPEC, EngineOptions(), default_cache_bytes=-(2**30))
    with pytest.raises(ExecutorError, match=r"a cache of 1 bytes has no room for one block.*\(cache_bytes\)"):
        limits_for(SPEC, EngineOptions(cache_bytes=1))
