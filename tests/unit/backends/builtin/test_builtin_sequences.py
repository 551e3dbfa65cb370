"""The sequence backends: sums over a sequence by control tensors, and counting down by running again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trireme.core.errors import CancelledError, InvalidArgumentError
from trireme.core.request import SEQUENCE_END

TENSORS = """
input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
max_batch_size: 4
"""
START = '{ name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] }'
READY = '{ name: "READY" control [ { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } ] }'
END = '{ name: "END" control [ { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } ] }'
CORRID = '{ name: "CORRID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] }'


def config(backend: str, *controls: str) -> str:
    batching = f"sequence_batching {{ control_input [ {', '.join(controls)} ] }}" if controls else ""
    return f'backend: "{backend}" {TENSORS} {batching}'


SEQUENCE = config("sequence", START, READY)
DYNA = config("dyna_sequence", START, END, READY, CORRID)
ITERATIVE = config("iterative_sequence") + 'parameters { key: "execute_delay_ms" value { string_value: "1" } }'


def step(values: list[int], **controls: int | bytes) -> dict[str, Any]:
    """A request as the scheduler hands it over: control tensors beside the input."""
    arrays: dict[str, Any] = {"INPUT": np.array([values], np.int32)}
    for name, value in {"START": 0, "READY": 1, **controls}.items():
        if isinstance(value, bytes):
            arrays[name] = np.array([[value]], object)
        else:
            arrays[name] = np.array([[value]], np.uint64 if name == "CORRID" else np.int32)
    return arrays


def test_sequence_is_added_up_from_its_start(bench: Any, run: Any) -> None:
    async def work() -> None:
        model = await bench(SEQUENCE).start()
        sums = []
        for values, start in (([1, 2], 1), ([3], 0), ([4], 0), ([5], 1)):
            sums += model.send(step(values, START=start), correlation_id=9).values("OUTPUT")
        assert sums == [[[3, 3]], [[6]], [[10]], [[5]]]

    run(work)


def test_sequences_in_one_batch_have_sums_of_their_own(bench: Any, run: Any) -> None:
    async def work() -> None:
        model = await bench(SEQUENCE).start()
        model.send(step([1], START=1), correlation_id=1)
        model.send(step([100], START=1), correlation_id="two")
        assert model.send(step([1]), correlation_id=1).values("OUTPUT") == [[[2]]]
        assert model.send(step([1]), correlation_id="two").values("OUTPUT") == [[[101]]]

    run(work)


def test_place_without_input_changes_nothing(bench: Any, run: Any) -> None:
    async def work() -> None:
        model = await bench(SEQUENCE).start()
        model.send(step([1], START=1), correlation_id=1)
        empty = model.send(step([50], READY=0), correlation_id=1)
        assert (empty.error, empty.responses[0].outputs) == (None, [])
        assert model.send(step([1]), correlation_id=1).values("OUTPUT") == [[[2]]]

    run(work)


def test_sum_is_forgotten_with_the_end_of_its_sequence(bench: Any, run: Any) -> None:
    async def work() -> None:
        model = await bench(SEQUENCE).start()
        (instance,) = model.instances
        model.send(step([1], START=1), correlation_id=1)
        assert instance._sums == {1: 1}
        last = model.send(step([2]), correlation_id=1, flags=SEQUENCE_END)
        assert last.values("OUTPUT") == [[[3]]]
        assert instance._sums == {}

    run(work)


def test_sum_stays_within_32_bits(bench: Any, run: Any) -> None:
    async def work() -> None:
        model = await bench(SEQUENCE).start()
        model.send(step([2**31 - 1], START=1), correlation_id=1)
        assert model.send(step([1]), correlation_id=1).values("OUTPUT") == [[[-(2**31)]]]

    run(work)


def test_more_than_one_row_or_too_large_a_batch_is_refused(bench: Any, run: Any) -> None:
    async def work() -> None:
        model = await bench(SEQUENCE).start()
        rows = model.send(step([1], START=1), batch_size=2)
        assert rows.error.message == "unable to execute more than one timestep at a time"
        many = model.send_together(*[step([1], START=1)] * 5)
        assert {sent.error.message for sent in many} == {"unable to execute batch larger than max-batch-size"}

    run(work)


def test_dyna_sequence_adds_the_correlation_id_at_the_end(bench: Any, run: Any) -> None:
    async def work() -> None:
        model = await bench(DYNA).start()
        (instance,) = model.instances
        sums = []
        for values, controls in (([1], {"START": 1, "END": 0}), ([2], {"END": 0}), ([3], {"END": 1})):
            sums += model.send(step(values, CORRID=1000, **controls)).values("OUTPUT")
        assert sums == [[[1]], [[3]], [[1006]]]
        assert instance._sums == {}

    run(work)


def test_dyna_sequence_reads_text_that_is_a_number(bench: Any, run: Any) -> None:
    async def work() -> None:
        model = await bench(DYNA.replace("TYPE_UINT64", "TYPE_STRING")).start()
        sent = model.send(step([1], START=1, END=1, CORRID=b"41"))
        assert sent.values("OUTPUT") == [[[42]]]
        sent = model.send(step([1], START=1, END=1, CORRID=b"forty"))
        expected = "dyna sequence backend expects correlation ID to be decodable into an integer"
        assert sent.error.message == expected

    run(work)


def test_execution_of_a_sequence_lasts_as_its_parameter_says(bench: Any, run: Any) -> None:
    async def work() -> None:
        model = await bench(SEQUENCE + 'parameters { key: "execute_delay_ms" value { string_value: "20" } }').start()
        sent = model.send(step([1], START=1))
        assert sent.responses == []
        await sent.all()
        assert sent.values("OUTPUT") == [[[1]]]

    run(work)


def test_iterative_sequence_counts_down_by_running_again(bench: Any, run: Any) -> None:
    async def work() -> None:
        model = await bench(ITERATIVE + "instance_group { count: 2 }").start()
        first, second = (model.send({"INPUT": np.array([[count]], np.int32)}) for count in (3, 1))
        responses = await first.all()
        assert first.values("OUTPUT") == [[[2]], [[1]], [[0]]]
        assert [response.is_final for response in responses] == [False, False, True]
        await second.all()
        assert second.values("OUTPUT") == [[[0]]]
        assert (model.inflight_count, model.stats.execution_count) == (0, 4)
        assert model.backend._left == {}

    run(work)


def test_iterative_sequence_that_is_cancelled_ends(bench: Any, run: Any) -> None:
    async def work() -> None:
        model = await bench(ITERATIVE.replace('"1"', '"20"')).start()
        sent = model.send({"INPUT": np.array([[1000]], np.int32)})
        await sent.first()
        sent.request.cancel()
        await sent.all()
        assert isinstance(sent.error, CancelledError)
        assert model.inflight_count == 0

    run(work)


@pytest.mark.parametrize(
    ("pbtxt", "text"),
    [
        (config("sequence", START), "'START' and 'READY' must be configured as the control inputs"),
        (
            config("dyna_sequence", START, READY),
            "'START', 'END', 'READY' and 'CORRID' must be configured as the control inputs",
        ),
        (
            DYNA.replace("TYPE_UINT64", "TYPE_INT32"),
            "model CORRID control input must have TYPE_UINT64 or TYPE_STRING data-type",
        ),
        (SEQUENCE.replace('"OUTPUT"', '"SUM"'), "model must have one output 'OUTPUT' with vector shape, any length"),
        (SEQUENCE.replace("TYPE_INT32", "TYPE_FP32"), "model input must have TYPE_INT32 data-type"),
        (ITERATIVE.replace('"INPUT"', '"N"'), "model must have one input, 'INPUT', with TYPE_INT32 data-type"),
    ],
)
def test_model_without_the_right_tensors_is_refused(bench: Any, run: Any, pbtxt: str, text: str) -> None:
    async def work() -> None:
        with pytest.raises(InvalidArgumentError) as caught:
            await bench(pbtxt).start()
        assert caught.value.message == text

    run(work)
