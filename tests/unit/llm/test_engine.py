"""The engine answers every request, also while it is being closed."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from ahead_executor import AheadExecutor

from trireme.llm.admission_errors import EngineBusyError, EngineClosedError
from trireme.llm.engine import EngineCore
from trireme.llm.executors.numpy.executor import NumpyExecutor
from trireme.llm.executors.port import StepResult
from trireme.llm.models.catalog import load_weights, read_spec
from trireme.llm.options import EngineOptions
from trireme.llm.request import FinishReason, SequenceOutput
from trireme.llm.sampling_params import SamplingParams
from trireme.llm.step_plan import StepPlan


class ClosingBias(Mapping[int, float]):
    """A bias during whose check the engine is closed by somebody else."""

    def __init__(self, close: Callable[[], None]) -> None:
        self._close = close

    def __getitem__(self, token: int) -> float:
        raise KeyError(token)

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[int]:
        self._close()
        return iter(())

    def values(self) -> Any:
        return ()


def test_a_request_that_meets_the_end_of_the_engine_is_refused(tiny_model: Any, start_engine: Any) -> None:
    engine = start_engine(tiny_model("llama").folder)
    params = SamplingParams(max_tokens=3, logit_bias=ClosingBias(engine.core.close))
    with pytest.raises(EngineClosedError, match="was closed"):
        engine.core.submit([5], params, lambda output: None)
    engine.core.cancel(1)  # of no use any more, and no harm


def test_requests_that_are_under_way_are_told_of_the_end(tiny_model: Any, start_engine: Any) -> None:
    engine = start_engine(tiny_model("llama").folder)
    inbox: queue.Queue[SequenceOutput] = queue.Queue()
    with engine.held():
        for _ in range(3):
            engine.core.submit([5, 6], SamplingParams(max_tokens=50), inbox.put)
    engine.core.close()
    ended = 0
    while ended < 3:
        output = inbox.get(timeout=10)
        if output.finish_reason is not None:
            assert output.finish_reason in (FinishReason.ERROR, FinishReason.LENGTH)
            ended += 1


def test_no_more_wait_than_may(tiny_model: Any, start_engine: Any) -> None:
    engine = start_engine(tiny_model("llama").folder, max_sequences=2, max_waiting=3)
    inbox: queue.Queue[SequenceOutput] = queue.Queue()
    with engine.held():
        for _ in range(5):
            engine.core.submit([5, 6], SamplingParams(max_tokens=1), inbox.put)
        with pytest.raises(EngineBusyError, match=r"of which 3 wait for their turn \(max_waiting\)"):
            engine.core.submit([5, 6], SamplingParams(max_tokens=1), inbox.put)
    assert [inbox.get(timeout=30).finish_reason for _ in range(5)] == [FinishReason.LENGTH] * 5
    assert len(engine.tokens([[5, 6]], 3)[0]) == 3


def test_without_a_bound_as_many_wait_as_come(tiny_model: Any, start_engine: Any) -> None:
    engine = start_engine(tiny_model("llama").folder, max_sequences=1, max_waiting=0)
    assert len(engine.tokens([[5, 6]] * 20, 1)) == 20


class SlowExecutor(NumpyExecutor):
    """Its steps wait for leave, as a device that hangs or compiles does."""

    is_preparing = False

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.is_reached, self.may_go_on = threading.Event(), threading.Event()

    def submit(self, plan: StepPlan) -> StepResult:
        self.is_reached.set()
        assert self.may_go_on.wait(timeout=60)
        return super().submit(plan)


def test_preparing_is_no_hanging(tiny_model: Any) -> None:
    folder, now = tiny_model("llama").folder, [100.0]
    spec, options = read_spec(folder), EngineOptions(cache_bytes=2**20, clock=lambda: now[0])
    executor = SlowExecutor(spec, load_weights(folder, spec), options)
    core, inbox = EngineCore(executor, options), queue.SimpleQueue[SequenceOutput]()
    core.submit([5], SamplingParams(max_tokens=1), inbox.put)
    assert executor.is_reached.wait(timeout=30)
    now[0] += 5
    assert core.stalled_s() == 5
    executor.is_preparing = True
    now[0] += 200
    assert core.stalled_s() == 0
    executor.is_preparing = False
    now[0] += 7
    assert core.stalled_s() == 7
    executor.may_go_on.set()
    assert inbox.get(timeout=30).finish_reason is FinishReason.LENGTH
    core.close()
    assert core.stalled_s() == 0


class LateCompany(AheadExecutor):
    """While it is at its second step, more requests come; it counts the sequences of each of its steps."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.limits = replace(self.limits, chooses_later=False)
        self.sizes: list[int] = []
        self.on_second: Callable[[], object] = lambda: None

    def submit(self, plan: StepPlan) -> StepResult:
        self.sizes.append(len(plan.chunks))
        if len(self.sizes) == 2:
            self.on_second()
        return super().submit(plan)


def test_those_that_come_during_a_step_share_the_next_ones_where_all_wait_for_their_last_tokens(
    tiny_model: Any,
) -> None:
    """In two halves by turns, each of them would read all weights."""
    folder, options = tiny_model("llama").folder, EngineOptions(cache_bytes=2**20, max_sequences=4)
    spec = read_spec(folder)
    executor = LateCompany(spec, load_weights(folder, spec), options)
    core, inbox = EngineCore(executor, options), queue.SimpleQueue[SequenceOutput]()
    params = SamplingParams(max_tokens=12, ignores_eos=True, repetition_penalty=1.3)
    executor.on_second = lambda: [core.submit([7, 8], params, inbox.put) for _ in range(2)]
    core.submit([5, 6], params, inbox.put)
    ended = 0
    while ended < 3:
        ended += inbox.get(timeout=60).finish_reason is not None
    core.close()
    assert executor.sizes == [1, 1, *[3] * 10, 2, 2]
