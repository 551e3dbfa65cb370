"""The repeat and square backends: how many responses, which, when, and what a cancellation does."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from trireme.core.errors import CancelledError, InvalidArgumentError

REPEAT = """
backend: "repeat" model_transaction_policy { decoupled: true }
input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] },
        { name: "DELAY" data_type: TYPE_UINT32 dims: [ -1 ] },
        { name: "WAIT" data_type: TYPE_UINT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] },
         { name: "IDX" data_type: TYPE_UINT32 dims: [ 1 ] } ]
"""
SQUARE = """
backend: "square" max_batch_size: 4 model_transaction_policy { decoupled: true }
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
"""


def repeat(values: list[int], delays_ms: list[int], wait_ms: int = 0) -> dict[str, Any]:
    return {
        "IN": np.array(values, np.int32),
        "DELAY": np.array(delays_ms, np.uint32),
        "WAIT": np.array([wait_ms], np.uint32),
    }


def square(count: int) -> dict[str, Any]:
    return {"IN": np.array([[count]], np.int32)}


def test_every_element_is_a_response_with_its_number_and_a_mark_follows(bench: Any, run: Any) -> None:
    async def work() -> None:
        model = await bench(REPEAT).start()
        sent = model.send(repeat([5, -6, 7], [0, 1, 0]))
        responses = await sent.all()
        assert sent.values("OUT") == [[5], [-6], [7]]
        assert sent.values("IDX") == [[0], [1], [2]]
        assert [response.is_final for response in responses] == [False, False, False, True]
        assert responses[-1].is_empty
        assert model.stats.inference_count == 1

    run(work)


def test_no_element_is_the_mark_alone(bench: Any, run: Any) -> None:
    async def work() -> None:
        sent = (await bench(REPEAT).start()).send(repeat([], []))
        (response,) = await sent.all()
        assert response.is_empty

    run(work)


def test_many_responses_without_a_delay_let_others_have_their_turn(bench: Any, run: Any) -> None:
    async def work() -> None:
        model = await bench(REPEAT).start()
        long = model.send(repeat(list(range(1000)), [0] * 1000))
        short = model.send(repeat([1], [0]))
        await short.all()
        assert len(long.responses) < 1000
        await long.all()
        assert long.values("OUT") == [[value] for value in range(1000)]

    run(work)


def test_wait_decides_when_the_next_request_runs(bench: Any, run: Any) -> None:
    async def work() -> None:
        model = await bench(REPEAT).start()
        slow = model.send(repeat([1, 1], [20, 20], 0))
        quick = model.send(repeat([2], [0], 50))  # begins at once: the first is released though it still responds
        late = model.send(repeat([3], [0], 0))
        await quick.all()
        assert not slow.is_over.is_set()
        assert late.responses == []
        assert model.pending_count == 1
        await slow.all()
        await late.all()
        assert model.inflight_count == 0

    run(work)


def test_only_the_requested_output_is_in_a_response(bench: Any, run: Any) -> None:
    async def work() -> None:
        model = await bench(REPEAT).start()
        sent = model.send(repeat([5], [0]), requested_outputs=("IDX",))
        await sent.all()
        assert (sent.values("OUT"), sent.values("IDX")) == ([], [[0]])

    run(work)


def test_delays_that_do_not_fit_are_refused(bench: Any, run: Any) -> None:
    async def work() -> None:
        sent = (await bench(REPEAT).start()).send(repeat([5, 6], [0]))
        await sent.all()
        assert sent.error.message == "expected IN and DELAY shape to match, got [2] and [1]"

    run(work)


@pytest.mark.parametrize("wait_ms", [0, 60_000])
def test_cancelled_stream_ends_and_frees_its_instance(bench: Any, run: Any, wait_ms: int) -> None:
    async def work() -> None:
        model = await bench(REPEAT).start()
        sent = model.send(repeat([1, 2, 3], [0, 60_000, 0], wait_ms))
        await sent.first()
        sent.request.cancel()
        await sent.all()
        assert isinstance(sent.error, CancelledError)
        assert len(sent.responses) == 2
        following = model.send(repeat([9], [0]))
        await following.all()
        assert model.inflight_count == 0

    run(work)


def test_square_answers_n_times_n(bench: Any, run: Any) -> None:
    async def work() -> None:
        model = await bench(SQUARE).start()
        first, second = model.send_together(square(3), square(0))
        responses = await first.all()
        assert first.values("OUT") == [[[3]]] * 3
        assert [response.is_final for response in responses] == [False, False, False, True]
        assert len(await second.all()) == 1

    run(work)


def test_square_fails_and_stays_silent_as_its_parameters_say(bench: Any, run: Any) -> None:
    numbers = {"CUSTOM_FAIL_COUNT": 2, "CUSTOM_EMPTY_COUNT": 1, "CUSTOM_INFER_DELAY_NS": 1000}
    numbers["CUSTOM_OUTPUT_DELAY_NS"] = 20_000_000
    parameters = "".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n' for key, value in numbers.items()
    )

    async def work() -> None:
        model = await bench(SQUARE + parameters).start()
        loop = asyncio.get_running_loop()
        began = loop.time()
        sent = model.send(square(5))
        responses = await sent.all()
        assert loop.time() - began >= 0.039  # two that succeed
        texts = [response.error.message if response.error else None for response in responses]
        assert texts == [None, None, "simulated failure", "simulated failure", None]
        assert [response.is_final for response in responses] == [False] * 4 + [True]

    run(work)


def test_square_of_a_negative_number_is_refused(bench: Any, run: Any) -> None:
    async def work() -> None:
        sent = (await bench(SQUARE).start()).send(square(-1))
        await sent.all()
        assert sent.error.message == "IN is the number of responses and must not be negative, got -1"

    run(work)


@pytest.mark.parametrize(
    ("pbtxt", "text"),
    [
        (REPEAT + "max_batch_size: 1", "repeat backend only supports models with max_batch_size == 0"),
        (REPEAT.replace('"IDX"', '"INDEX"'), "expected second output tensor name to be IDX, got INDEX"),
        (
            REPEAT.replace("TYPE_INT32 dims: [ -1 ]", "TYPE_INT64 dims: [ -1 ]"),
            "expected IN datatype to be INT32, got TYPE_INT64",
        ),
        (SQUARE.replace("dims: [ 1 ]", "dims: [ 2 ]"), "expected IN shape to be [1], got [2]"),
        (SQUARE + 'input [ { name: "B" data_type: TYPE_INT32 dims: [ 1 ] } ]', "expected 1 input, got 2"),
    ],
)
def test_model_of_another_shape_is_refused(bench: Any, run: Any, pbtxt: str, text: str) -> None:
    async def work() -> None:
        with pytest.raises(InvalidArgumentError) as caught:
            await bench(pbtxt).start()
        assert caught.value.message == text

    run(work)
