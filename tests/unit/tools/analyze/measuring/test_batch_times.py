"""Batches between two looks at a server's statistics."""

from __future__ import annotations

from trireme.tools.analyze.measuring.batch_times import batches_between, read_batches
from trireme.tools.analyze.trial import BatchTime


def entry(size: int, count: object, ns: object) -> dict[str, object]:
    durations = {"count": count, "ns": ns}
    return {"batch_size": size, "compute_input": durations, "compute_infer": durations, "compute_output": durations}


def test_all_stages_and_all_versions_are_added_up() -> None:
    statistics = [{"batch_stats": [entry(4, 2, 10)]}, {"batch_stats": [entry(4, "1", "5"), entry(8, 1, 1)]}]
    assert read_batches(statistics) == {4: (3, 45), 8: (1, 3)}


def test_what_was_there_before_does_not_count() -> None:
    assert batches_between({4: (2, 20)}, {4: (5, 80), 8: (1, 7)}) == (BatchTime(4, 3, 60), BatchTime(8, 1, 7))
    assert batches_between({4: (2, 20)}, {4: (2, 20)}) == ()


def test_a_server_that_was_started_anew_counts_from_nothing() -> None:
    assert batches_between({4: (9, 90)}, {4: (2, 20)}) == (BatchTime(4, 2, 20),)
