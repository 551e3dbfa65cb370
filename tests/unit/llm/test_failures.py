"""What goes wrong for one request ends that request; what goes wrong for all of them is told to each."""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from trireme.llm import Engine, EngineOptions
from trireme.llm.admission_errors import EngineClosedError
from trireme.llm.executors.numpy.executor import NumpyExecutor
from trireme.llm.grammar.token_bits import TokenBits, every_token
from trireme.llm.models.catalog import load_weights, read_spec
from trireme.llm.request import FinishReason, SequenceOutput
from trireme.llm.sampling_params import SamplingError, SamplingParams
from trireme.llm.scheduler import Scheduler
from trireme.llm.text_engine import GenerationError
from trireme.llm.tokenizer.loading import load_tokenizer

SHIPPED = Path(__file__).parents[3] / "examples" / "model_repository" / "scribe" / "1"
HAS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
KINDS = ["numpy", "torch", pytest.param("cuda", marks=HAS_GPU)]


class BrokenState:
    """A grammar that fails in one of its methods, and its state."""

    is_finished = False
    error = ""
    cost_s = later_cost_s = advance_s = 0.0

    def __init__(self, where: str) -> None:
        self._where = where

    def start(self) -> BrokenState:
        return self

    def allowed(self, vocab_size: int) -> TokenBits:
        if self._where == "allowed":
            raise ZeroDivisionError("no mask today")
        return every_token(vocab_size)

    def advance(self, token: int) -> None:
        if self._where == "advance":
            raise ZeroDivisionError("no way on")


class FailingExecutor(NumpyExecutor):
    """Fails in its steps and in its end."""

    def submit(self, plan: Any) -> Any:
        raise MemoryError("the device is gone")

    def close(self) -> None:
        raise MemoryError("still gone")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 1.0, "top_k": 2**70},
        {"temperature": 1e-308, "top_p": 0.5},
        {"temperature": 1.0, "logit_bias": dict.fromkeys(range(128), -1e300)},
        {"temperature": 1.0, "logit_bias": {3: 1e300, 4: 1e300}, "top_p": 0.9},
        {"temperature": 1.0, "bad_words": tuple((token,) for token in range(128)), "top_p": 0.9},
        {"bad_words": tuple((token,) for token in range(128))},
        {"temperature": 1e308, "repetition_penalty": 1e-6, "top_k": 3},
        {"max_tokens": 5, "min_tokens": 5, "seed": 2**64 - 1, "temperature": 1.0},
    ],
)
def test_extreme_wishes_are_followed(tiny_model: Any, start_engine: Any, kind: str, params: dict[str, Any]) -> None:
    engine = start_engine(tiny_model("llama").folder, kind=kind)
    wishes = [SamplingParams(**{"max_tokens": 5, **params}), SamplingParams(max_tokens=5)]
    plain = start_engine(tiny_model("llama").folder, kind=kind).tokens([[5, 6]], 5)
    strange, beside = engine.answers([[5, 6]] * 2, wishes)
    assert [output.error for output in strange] == [""] * 5
    assert [token for output in beside for token in output.token_ids] == plain[0]


@pytest.mark.parametrize("kind", KINDS)
def test_where_everything_is_forbidden_the_largest_is_taken(tiny_model: Any, start_engine: Any, kind: str) -> None:
    engine = start_engine(tiny_model("llama").folder, kind=kind)
    everything = tuple((token,) for token in range(engine.core.spec.vocab_size))
    plain = engine.tokens([[5, 6]], 5)
    assert engine.tokens([[5, 6]], 5, bad_words=everything) == plain
    assert engine.tokens([[5, 6]], 5, bad_words=everything, temperature=1.0, seed=3) == plain


@pytest.mark.parametrize("kind", KINDS)
def test_ends_that_the_model_cannot_write_are_left_out(tiny_model: Any, start_engine: Any, kind: str) -> None:
    core = start_engine(tiny_model("llama").folder, kind=kind).core
    inbox: queue.Queue[SequenceOutput] = queue.Queue()
    core.submit([5, 6], SamplingParams(max_tokens=3, min_tokens=3), inbox.put, end_ids=(-1, 10**6))
    outputs = [inbox.get(timeout=30) for _ in range(3)]
    assert outputs[-1].finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", ["allowed", "advance"])
def test_a_grammar_that_fails_ends_its_own_sequence(tiny_model: Any, start_engine: Any, kind: str, where: str) -> None:
    engine = start_engine(tiny_model("llama").folder, kind=kind)
    plain = engine.tokens([[5, 6]], 5)
    wishes = [SamplingParams(max_tokens=5, grammar=BrokenState(where)), SamplingParams(max_tokens=5)]
    broken, beside = engine.answers([[5, 6]] * 2, wishes)
    assert broken[-1].finish_reason is FinishReason.ERROR
    assert "ZeroDivisionError: no" in broken[-1].error
    assert [token for output in beside for token in output.token_ids] == plain[0]
    assert engine.core.is_alive


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("params", [{}, {"temperature": 1.0, "top_p": 0.9}, {"logprobs": 2}, {"beams": 2}])
def test_a_sequence_that_the_model_has_no_numbers_for_is_ended(
    model_without_numbers: Path, start_engine: Any, kind: str, params: dict[str, Any]
) -> None:
    engine = start_engine(model_without_numbers, kind=kind)
    wishes = [SamplingParams(max_tokens=3, **params), SamplingParams(max_tokens=3)]
    broken, beside = engine.answers([[6, 5], [6, 7]], wishes)
    assert [output.finish_reason for output in broken] == [FinishReason.ERROR]
    assert "no numbers any more; download its weights again, or ask for another dtype" in broken[0].error
    assert [token for output in beside for token in output.token_ids] == engine.tokens([[6, 7]], 3)[0]
    assert beside[-1].finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"priority": "high"}, "'priority' is 'high'; it has to be a whole number"),
        ({"priority": 0.5}, "'priority' is 0.5; it has to be a whole number"),
        ({"timeout_s": float("nan")}, "'timeout_s' is nan; it has to be a number of seconds"),
        ({"timeout_s": -1.0}, "'timeout_s' is -1.0; it has to be"),
    ],
)
def test_a_place_in_the_line_that_is_none_is_refused(
    tiny_model: Any, start_engine: Any, wish: dict[str, Any], words: str
) -> None:
    engine = start_engine(tiny_model("llama").folder)
    with engine.held(), pytest.raises(SamplingError, match=words):
        engine.core.submit([5, 6], SamplingParams(max_tokens=2), lambda output: None, **wish)
    assert engine.core.is_alive


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_that_are_none_do_not_reach_the_next_in_their_blocks(
    model_without_numbers: Path, start_engine: Any, kind: str
) -> None:
    engine = start_engine(model_without_numbers, kind=kind, blocks=4)
    wanted = engine.tokens([[6, 7], [8, 9, 10]], 4)
    (broken,) = engine.answers([[5] * 15], [SamplingParams(max_tokens=3)])  # all blocks
    assert broken[0].finish_reason is FinishReason.ERROR
    for _ in range(3):
        assert engine.tokens([[6, 7], [8, 9, 10]], 4) == wanted


def test_a_listener_that_fails_ends_its_own_sequence(tiny_model: Any, start_engine: Any) -> None:
    engine = start_engine(tiny_model("llama").folder)
    heard: list[SequenceOutput] = []
    is_told = threading.Event()

    def listen(output: SequenceOutput) -> None:
        heard.append(output)
        if output.finish_reason is None:
            raise ZeroDivisionError("no ear")
        is_told.set()

    engine.core.submit([5, 6], SamplingParams(max_tokens=5), listen)
    assert is_told.wait(timeout=30)
    assert [output.finish_reason for output in heard] == [None, FinishReason.ERROR]
    assert "ZeroDivisionError: no ear" in heard[-1].error
    assert len(engine.tokens([[5, 6]], 5)[0]) == 5


def failing_engine() -> Engine:
    spec, options = read_spec(SHIPPED), EngineOptions(cache_bytes=2**20)
    return Engine(FailingExecutor(spec, load_weights(SHIPPED, spec), options), load_tokenizer(SHIPPED), options)


def within_time(work: Any) -> Any:
    """What the work raises, in a thread of its own; fails where it does not end."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout=30)
    assert not thread.is_alive()
    return raised[0] if raised else None


@pytest.mark.parametrize("ask", ["generate", "stream"])
def test_who_waits_hears_that_the_engine_has_failed(ask: str) -> None:
    engine = failing_engine()
    works = {"generate": lambda: engine.generate("Once"), "stream": lambda: list(engine.stream("Once"))}
    error = within_time(works[ask])
    assert isinstance(error, GenerationError)
    assert "MemoryError: the device is gone" in str(error)
    assert not engine.core.is_alive
    with pytest.raises(EngineClosedError, match="the device is gone"):
        engine.generate("Once")
    engine.close()


@pytest.mark.parametrize("where", ["schedule", "add"])
def test_who_waits_hears_that_the_scheduler_has_failed(
    tiny_model: Any, start_engine: Any, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def fail(*given: Any) -> None:
        raise IndexError("no order left")

    engine = start_engine(tiny_model("llama").folder)
    inbox: queue.Queue[SequenceOutput] = queue.Queue()
    with engine.held():
        monkeypatch.setattr(Scheduler, where, fail)
        monkeypatch.setattr(Scheduler, "finish", fail)
        for _ in range(2):
            engine.core.submit([5, 6], SamplingParams(max_tokens=5), inbox.put)
    outputs = [inbox.get(timeout=10) for _ in range(2)]
    assert [one.finish_reason for one in outputs] == [FinishReason.ERROR] * 2
    assert "IndexError: no order left" in outputs[0].error
