"""Engines around models that run through the code of transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trireme.llm.engine import EngineCore
from trireme.llm.executor_choice import load_executor
from trireme.llm.options import EngineOptions


@pytest.fixture
def start_general(running_engine: type) -> Iterator[Callable[..., Any]]:
    """Starts engines as `load_executor` would; `blocks` takes the place of what fits into memory."""
    engines: list[EngineCore] = []

    def start(folder: Path, *, blocks: int = 64, **options: Any) -> Any:
        chosen = EngineOptions(block_size=4, cache_bytes=2**21, **options)
        executor = load_executor(folder, chosen, "cpu", "float32")
        executor.limits = replace(executor.limits, block_count=blocks)
        engines.append(EngineCore(executor, chosen))
        return running_engine(engines[-1])

    yield start
    for engine in engines:
        engine.close()
