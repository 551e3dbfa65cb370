"""What steps need is made ready at the start or while nothing runs, and never keeps a request waiting for all of it."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

import pytest
from waiting import until

from trireme.llm.engine import EngineCore
from trireme.llm.executors.numpy.executor import NumpyExecutor
from trireme.llm.executors.port import WarmUp
from trireme.llm.models.catalog import load_weights, read_spec
from trireme.llm.options import EngineOptions, WarmUpMode
from trireme.llm.request import FinishReason, SequenceOutput
from trireme.llm.sampling_params import SamplingParams


class RecordingExecutor(NumpyExecutor):
    """Has kinds of steps to make ready, as a GPU has."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.made: list[str] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def warm_ups(self) -> list[WarmUp]:
        return [
            WarmUp(name, self._make(name), is_first=name == "first") for name in ("first", "broken", "third", "last")
        ]

    def _make(self, name: str) -> Callable[[], object]:
        def make() -> None:
            if name != "first":
                assert self.may_go_on.wait(timeout=30)
            self.made.append(name)
            if name == "broken":
                raise MemoryError("no room")

        return make


def started(tiny_model: Any, mode: WarmUpMode, is_held: bool = False) -> tuple[EngineCore, RecordingExecutor]:
    folder = tiny_model("llama").folder
    spec, options = read_spec(folder), EngineOptions(cache_bytes=2**20, warm_up=mode)
    executor = RecordingExecutor(spec, load_weights(folder, spec), options)
    if is_held:
        executor.may_go_on.clear()
    return EngineCore(executor, options), executor


def test_the_first_is_ready_with_the_engine_and_the_rest_while_nothing_runs(
    tiny_model: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    core, executor = started(tiny_model, WarmUpMode.IDLE, is_held=True)
    assert executor.made == ["first"]
    inbox: queue.SimpleQueue[SequenceOutput] = queue.SimpleQueue()
    core.submit([5], SamplingParams(max_tokens=1), inbox.put)
    executor.may_go_on.set()
    assert inbox.get(timeout=30).finish_reason is FinishReason.LENGTH
    until(lambda: executor.made == ["first", "broken", "third", "last"])
    core.close()
    assert "broken could not be made ready" in caplog.text
    assert "warm-up: 1 of 4 kinds of steps are ready (first)" in caplog.text
    assert "warm-up: all 4 kinds of steps are ready" in caplog.text


def test_requests_come_before_what_is_not_needed_yet(tiny_model: Any) -> None:
    core, executor = started(tiny_model, WarmUpMode.IDLE, is_held=True)
    inbox: queue.SimpleQueue[SequenceOutput] = queue.SimpleQueue()
    made: list[int] = []
    core.submit(
        [5], SamplingParams(max_tokens=3), lambda output: (made.append(len(executor.made)), inbox.put(output))[0]
    )
    executor.may_go_on.set()
    while inbox.get(timeout=30).finish_reason is None:
        pass
    assert set(made) <= {1, 2}  # no more than what was under way when it came
    until(lambda: len(executor.made) == 4)
    core.close()


@pytest.mark.parametrize(
    ("mode", "made"), [(WarmUpMode.LOAD, ["first", "broken", "third", "last"]), (WarmUpMode.OFF, [])]
)
def test_all_or_nothing_can_be_asked_for(tiny_model: Any, mode: WarmUpMode, made: list[str]) -> None:
    core, executor = started(tiny_model, mode)
    assert executor.made == made
    core.close()
