"""Batches cut into slices, run on replicas, and joined again in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trireme.backends.compiled.batching import Arrays, RequestError, Result
from trireme.backends.neuron.replicas import Replicas, RunReplica


class Calls:
    """Replicas that double their input and remember what they got."""

    def __init__(self, count: int) -> None:
        self.seen: list[tuple[int, int]] = []
        self.calls: list[RunReplica] = [self.replica(number) for number in range(count)]

    def replica(self, number: int) -> RunReplica:
        def call(arrays: Arrays, wanted: Sequence[str]) -> dict[str, Result]:
            self.seen.append((number, len(arrays["x"])))
            return {name: Result(arrays["x"] * 2) for name in wanted}

        return call


@contextmanager
def replicas_of(calls: Sequence[RunReplica], fixed_rows: int | None = None) -> Iterator[Replicas]:
    replicas = Replicas(calls, fixed_rows)
    try:
        yield replicas
    finally:
        replicas.close()


@settings(max_examples=60, deadline=None)
@given(rows=st.integers(1, 40), count=st.integers(1, 17), fixed=st.none() | st.integers(1, 9))
def test_result_is_that_of_the_whole_batch(rows: int, count: int, fixed: int | None) -> None:
    x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
    with replicas_of(Calls(count).calls, fixed) as replicas:
        result = replicas.run({"x": x}, ["y"])["y"]
    np.testing.assert_array_equal(result.array, x * 2)


@pytest.mark.parametrize(("rows", "slices"), [(16, [4, 4, 4, 4]), (18, [5, 5, 4, 4]), (3, [1, 1, 1]), (1, [1])])
def test_every_replica_gets_one_slice_and_none_an_empty_one(rows: int, slices: list[int]) -> None:
    made = Calls(4)
    with replicas_of(made.calls) as replicas:
        replicas.run({"x": np.zeros((rows, 2))}, ["y"])
    assert sorted(made.seen) == list(enumerate(slices))


def test_model_of_fixed_rows_gets_them_whatever_comes() -> None:
    made = Calls(3)
    with replicas_of(made.calls, 4) as replicas:
        assert len(replicas.run({"x": np.ones((9, 2))}, ["y"])["y"].array) == 9
    assert [rows for _, rows in made.seen] == [4, 4, 4]


def test_slices_run_at_the_same_time() -> None:
    meeting = threading.Barrier(4, timeout=20)

    def call(arrays: Arrays, wanted: Sequence[str]) -> dict[str, Result]:
        meeting.wait()
        return {"y": Result(arrays["x"])}

    with replicas_of([call] * 4) as replicas:
        assert len(replicas.run({"x": np.zeros((4, 1))}, ["y"])["y"].array) == 4


def test_inputs_of_different_lengths_are_the_senders_mistake() -> None:
    with (
        replicas_of(Calls(2).calls) as replicas,
        pytest.raises(RequestError, match="'x' has 2, 'z' has 3"),
    ):
        replicas.run({"x": np.zeros((2, 1)), "z": np.zeros((3, 1))}, ["y"])


def test_empty_batch_is_the_senders_mistake() -> None:
    with replicas_of(Calls(2).calls) as replicas, pytest.raises(RequestError, match="empty"):
        replicas.run({"x": np.zeros((0, 1))}, ["y"])


def test_output_without_a_batch_dimension_is_named() -> None:
    def call(arrays: Arrays, wanted: Sequence[str]) -> dict[str, Result]:
        return {"y": Result(np.zeros(7))}

    with replicas_of([call] * 2) as replicas, pytest.raises(RuntimeError, match=r"output 'y' has the shape \(7,\)"):
        replicas.run({"x": np.zeros((4, 1))}, ["y"])


def test_failure_of_one_slice_is_the_failure_of_the_batch() -> None:
    def call(arrays: Arrays, wanted: Sequence[str]) -> dict[str, Result]:
        if arrays["x"][0, 0] == 1:
            raise ValueError("core 1 is out of memory")
        return {"y": Result(arrays["x"])}

    with replicas_of([call] * 2) as replicas, pytest.raises(ValueError, match="core 1 is out of memory"):
        replicas.run({"x": np.array([[0], [1]])}, ["y"])
