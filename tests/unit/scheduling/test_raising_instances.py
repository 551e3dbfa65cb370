"""Instances that raise instead of taking a batch: their requests fail, and the next ones are served."""

from __future__ import annotations

from typing import Any

import pytest

from trireme.config.sequence_config import SequenceBatchingConfig
from trireme.core.errors import ErrorKind


def build(bench: Any, kind: str) -> Any:
    if kind == "direct":
        bench.build()
    elif kind == "batches":
        bench.batcher()
    else:
        bench.build(sequence_batching=SequenceBatchingConfig(max_idle_us=1_000_000), max_batch_size=4)
    return bench.instance()


@pytest.mark.parametrize("kind", ["direct", "batches", "sequences"])
@pytest.mark.parametrize("has_finished", [False, True])
def test_what_it_raised_is_the_answer_and_it_takes_the_next_batch(bench: Any, kind: str, has_finished: bool) -> None:
    instance = build(bench, kind)
    execute = instance.execute
    fields = {"correlation_id": 7, "flags": 3} if kind == "sequences" else {}

    def raising(batch: Any) -> None:
        if has_finished:
            execute(batch)
            instance.finish()
        raise ValueError("out of luck")

    instance.execute = raising
    bench.send("a", **fields)
    [answer] = bench.client.answers["a"]
    if has_finished:
        assert answer.error is None
    else:
        assert answer.error.kind is ErrorKind.INTERNAL
        assert answer.error.message == "instance 'model_0' failed: ValueError: out of luck"
    instance.execute = execute
    bench.send("b", **fields)
    instance.finish()
    assert bench.client.answers["b"][0].error is None
    assert bench.scheduler.inflight_count == 0
