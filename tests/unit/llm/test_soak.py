"""Many requests that come, stop, give way and are given up, in too small a cache: no block is lost and no token wrong.

python tests/unit/llm/test_soak.py --requests 10000
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest

from trireme.llm.engine import EngineCore
from trireme.llm.executors.numpy.executor import NumpyExecutor
from trireme.llm.models.checkpoint import Weight
from trireme.llm.models.spec import DecoderSpec, RopeSpec, shape_of
from trireme.llm.options import EngineOptions
from trireme.llm.request import FinishReason, Sequence, SequenceOutput
from trireme.llm.sampling_params import SamplingParams
from trireme.llm.turns import giving_way
from trireme.llm.turns.waiting_line import WaitingLine

SPEC = DecoderSpec("LlamaForCausalLM", 64, 16, 2, 2, 1, 8, 24, 96, rope=RopeSpec(1e4, 8, (1.0, 0.1, 0.01, 0.001)))
BLOCK_SIZE = 4
BLOCK_BYTES = 2 * 4 * SPEC.layer_count * BLOCK_SIZE * SPEC.kv_head_count * SPEC.head_size
IN_FLIGHT = 24


def random_weights() -> Iterator[tuple[str, Weight]]:
    chance = np.random.default_rng(0)
    layer = ("attention_norm", "qkv", "o", "mlp_norm", "up", "down")
    layers = [f"layers.{number}.{name}" for number in range(SPEC.layer_count) for name in layer]
    for module in ("embed", *layers, "norm", "head"):
        shape = shape_of(f"{module}.weight", SPEC)
        scale = 1.5 * shape[-1] ** -0.5 if len(shape) > 1 else 0.2
        values = chance.normal(0 if len(shape) > 1 else 1, scale, shape)
        yield f"{module}.weight", Weight(values.astype(np.float32), "F32")


def start_engine(blocks: int, sequences: int, has_prefix_cache: bool = True) -> EngineCore:
    options = EngineOptions(
        block_size=BLOCK_SIZE,
        cache_bytes=blocks * BLOCK_BYTES,
        max_sequences=sequences,
        max_step_tokens=24,
        has_prefix_cache=has_prefix_cache,
    )
    return EngineCore(NumpyExecutor(SPEC, random_weights(), options), options)


@dataclass
class Request:
    """A request, and what has come of it."""

    prompt: list[int]
    params: SamplingParams
    sequence_id: int = 0
    tokens: list[int] = field(default_factory=list)
    reason: FinishReason | None = None
    error: str = ""


class Crowd:
    """Keeps a number of requests under way."""

    def __init__(self, engine: EngineCore, seed: int) -> None:
        self._engine = engine
        self._chance = random.Random(seed)
        self._room = threading.Semaphore(IN_FLIGHT)
        self.requests: list[Request] = []
        self._first_id = 0
        self._answers_left = 0
        """How many more belong to the request of the last one."""

    def send(self, count: int) -> None:
        """Sends requests as others end; some are given up on the way."""
        for _ in range(count):
            assert self._room.acquire(timeout=60), "nothing has ended for a minute"
            request = self._random_request()
            if self._answers_left and not request.params.beams:
                self._answers_left -= 1
            else:
                self._answers_left, self._first_id = self._chance.choice([0, 0, 1, 7]), self._engine.new_id()
            request.sequence_id = self._engine.submit(
                request.prompt,
                request.params,
                partial(self._take, request),
                request_id=None if request.params.beams else self._first_id,
            )
            self.requests.append(request)
            if self._chance.random() < 0.15:
                self._engine.cancel(self._chance.choice(self.requests[-IN_FLIGHT:]).sequence_id)
        for _ in range(IN_FLIGHT):
            assert self._room.acquire(timeout=60), "a request has not ended"

    def _take(self, request: Request, output: SequenceOutput) -> None:
        request.tokens += output.token_ids
        if output.finish_reason is not None:
            request.reason, request.error = output.finish_reason, output.error
            self._room.release()

    def _random_request(self) -> Request:
        """Prompts begin alike, so that blocks are shared."""
        chance = self._chance
        common = chance.choice([[], [1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 4, 9, 9, 9, 9, 9, 9, 9, 9, 9]])
        own = [chance.randrange(SPEC.vocab_size) for _ in range(chance.randrange(1, 30))]
        if chance.random() < 0.2:
            return Request(
                common + own, SamplingParams(max_tokens=chance.randrange(1, 24), beams=chance.choice([2, 3]))
            )
        params = SamplingParams(
            max_tokens=chance.randrange(1, 24),
            temperature=chance.choice([0.0, 0.0, 1.0]),
            seed=chance.randrange(100),
            repetition_penalty=chance.choice([1.0, 1.0, 1.0, 1.3]),
            stop_ids=tuple(chance.sample(range(SPEC.vocab_size), chance.choice([0, 0, 4]))),
        )
        return Request(common + own, params)


def soak(count: int, seed: int = 0, sample: int = 60) -> dict[str, int]:
    """Sends so many requests, and compares some of their texts with what they get when they are alone."""
    engine, alone = start_engine(blocks=40, sequences=10), start_engine(200, 3, has_prefix_cache=False)
    crowd = Crowd(engine, seed)
    gave_way: list[Sequence] = []

    def who(newcomer: Sequence, running: Iterable[Sequence], line: WaitingLine, *more: int) -> Sequence | None:
        victim = giving_way.who_gives_way(newcomer, running, line, *more)
        gave_way.extend([victim] if victim is not None else [])
        return victim

    with patch.object(giving_way, "_TURN_TOKENS", 2), patch("trireme.llm.scheduler.who_gives_way", who):
        crowd.send(count)
    stats = engine.stats()
    assert (stats.free_blocks, stats.running, stats.waiting) == (stats.block_count, 0, 0)
    reasons = [request.reason for request in crowd.requests]
    assert set(reasons) == {FinishReason.LENGTH, FinishReason.STOP, FinishReason.CANCELLED}
    for request in random.Random(seed).sample(crowd.requests, sample):
        check(request, alone)
    engine.close()
    alone.close()
    return {reason.value: reasons.count(reason) for reason in set(reasons) if reason} | {
        "preemptions": stats.preemptions,
        "given way": len(gave_way),
        "cached tokens": stats.cached_tokens,
    }


def check(request: Request, alone: EngineCore) -> None:
    single, ended = Request(request.prompt, request.params), threading.Event()

    def take(output: SequenceOutput) -> None:
        single.tokens += output.token_ids
        if output.finish_reason is not None:
            single.reason = output.finish_reason
            ended.set()

    alone.submit(request.prompt, request.params, take)
    assert ended.wait(timeout=60)
    if request.reason is FinishReason.CANCELLED:
        assert single.tokens[: len(request.tokens)] == request.tokens
    else:
        assert (single.tokens, single.reason) == (request.tokens, request.reason)


@pytest.mark.slow
def test_a_crowd_in_a_small_cache_leaves_nothing_behind_and_gets_its_own_tokens() -> None:
    found = soak(1500)
    assert found["given way"] > 20
    assert found["preemptions"] > 20
    assert found["cached tokens"] > 1000
    assert found["cancelled"] > 50


def test_beams_that_were_thrown_out_come_back_when_there_is_room_for_all_of_them() -> None:
    engine = start_engine(blocks=40, sequences=10)
    ended = threading.Semaphore(0)
    ends: list[SequenceOutput] = []

    def take(output: SequenceOutput) -> None:
        if output.finish_reason is not None:
            ends.append(output)
            ended.release()

    engine.submit([1] * 60, SamplingParams(max_tokens=29), take)
    engine.submit([2] * 40, SamplingParams(max_tokens=45, beams=4), take)
    for _ in range(2):
        assert ended.acquire(timeout=60)
    stats = engine.stats()
    engine.close()
    assert [output.error for output in ends] == ["", ""]
    assert 0 < stats.preemptions <= 2
    assert stats.free_blocks == stats.block_count


def test_a_search_of_one_token_has_no_time_between_tokens() -> None:
    engine = start_engine(blocks=40, sequences=10)
    ended = threading.Event()
    engine.submit([1, 2, 3], SamplingParams(max_tokens=1, beams=2), lambda output: ended.set())
    assert ended.wait(60)
    stats = engine.stats()
    engine.close()
    assert stats.output_token.total == 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sample", type=int, default=500)
    chosen = parser.parse_args()
    began = time.perf_counter()
    print(soak(chosen.requests, chosen.seed, chosen.sample), f"{time.perf_counter() - began:.1f} s")
