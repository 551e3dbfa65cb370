"""Stages of a request that goes through several models: no time of it counts twice."""

from __future__ import annotations

import numpy as np
import pytest

from trireme.tools.analyze.measuring.load_point import measured
from trireme.tools.perf.load.records import Records
from trireme.tools.perf.measure.server_stats import ServerCounts, ServerStats
from trireme.tools.perf.measure.window import Window, summarize

MS = 1_000_000


def stats(name: str, infer_ms: int, queue_ms: int = 0, around_ms: int = 0, *parts: ServerStats) -> ServerStats:
    """Ten requests of a model."""
    whole = infer_ms + queue_ms + 2 * around_ms
    counts = ServerCounts(
        inference_count=10,
        execution_count=10,
        success_count=10,
        success_ns=10 * whole * MS,
        queue_ns=10 * queue_ms * MS,
        compute_input_ns=10 * around_ms * MS,
        compute_infer_ns=10 * infer_ms * MS,
        compute_output_ns=10 * around_ms * MS,
    )
    return ServerStats(name, "1", counts, parts)


def stages(server: ServerStats) -> dict[str, float]:
    rows = np.array([(0, 0, 1000, 50 * MS, 50 * MS, 1, 0)] * 10, np.int64)
    summary = summarize([Window(Records(rows, []), 10**9, server)], 1, None)
    assert summary is not None
    found = measured("e", summary, is_stable=True).metrics
    return {tag.removeprefix("perf_server_"): value for tag, value in found.items() if "server" in tag}


STEPS = (stats("a", 10, 2, 1), stats("b", 20, 3, 1))


@pytest.mark.parametrize(
    "ensemble",
    [stats("e", 39, 0, 0, *STEPS), stats("e", 30, 0, 2, *STEPS)],
    ids=["the whole way is its own", "the sum of its steps is its own"],
)
def test_an_ensembles_stages_are_those_of_its_steps(ensemble: ServerStats) -> None:
    assert stages(ensemble) == {"queue": 5, "compute_input": 2, "compute_infer": 30, "compute_output": 2}


def test_a_caller_has_what_it_computes_itself_beside_what_it_calls() -> None:
    caller = stats("e", 21, 4, 0, stats("a", 10, 2, 1))
    assert stages(caller) == {"queue": 6, "compute_input": 1, "compute_infer": 17, "compute_output": 1}
