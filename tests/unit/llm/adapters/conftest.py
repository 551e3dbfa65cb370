"""Engines with adapters, and what they write for requests that each name one or none."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from trireme.llm.adapters.store import AdapterStore
from trireme.llm.request import SequenceOutput
from trireme.llm.sampling_params import SamplingParams


class AdaptedEngine:
    """An engine and its adapters."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.store = AdapterStore(engine.core.spec, engine.core.options, engine.core.executor)

    def tokens(self, prompts: Sequence[tuple[Sequence[int], str]], count: int, **params: Any) -> list[list[int]]:
        """So many tokens behind each prompt with its adapter ("": none), all in one batch."""
        inboxes: list[queue.Queue[SequenceOutput]] = [queue.Queue() for _ in prompts]
        taken = [self.store.take(name) if name else None for _, name in prompts]
        chosen = SamplingParams(max_tokens=count, **params)
        with self.engine.held():
            for (prompt, _), adapter, inbox in zip(prompts, taken, inboxes, strict=True):
                self.engine.core.submit(prompt, chosen, inbox.put, adapter=adapter)
        found = [_tokens_of(inbox) for inbox in inboxes]
        for adapter in taken:
            if adapter is not None:
                self.store.give_back(adapter)
        return found


def _tokens_of(inbox: queue.Queue[SequenceOutput]) -> list[int]:
    found: list[int] = []
    while True:
        output = inbox.get(timeout=60)
        assert not output.error
        found += output.token_ids
        if output.finish_reason is not None:
            return found


@pytest.fixture
def start_adapted(start_engine: Callable[..., Any]) -> Callable[..., AdaptedEngine]:
    """Starts engines with a folder of adapters."""

    def start(folder: Path, adapters: Path, **options: Any) -> AdaptedEngine:
        return AdaptedEngine(start_engine(folder, adapters=adapters, **options))

    return start
