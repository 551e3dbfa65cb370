"""Batches and queues as a client sees them: who runs with whom, who goes first, who is refused."""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Callable

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException
from waiting import until


class Burst:
    """Requests sent together, and their answers as they come."""

    def __init__(self, door) -> None:
        self._door = door
        self._found: queue.Queue = queue.Queue()
        self._sent = 0

    def send(self, model: str, name: str, array: np.ndarray, request_id: str = "", **options) -> None:
        entry = triton.InferInput(name, list(array.shape), "FP32")
        entry.set_data_from_numpy(array)
        label = request_id or str(self._sent)
        self._sent += 1
        self._door.client.async_infer(
            model,
            [entry],
            callback=lambda result, error: self._found.put((label, result if error is None else error)),
            request_id=request_id,
            **options,
        )

    def next_answer(self) -> tuple:
        """The request id and the result or error of the answer that comes first."""
        self._sent -= 1
        return self._found.get(timeout=20)

    def answers(self) -> dict:
        """Results and errors by request id, in the order of their arrival."""
        return dict(self._found.get(timeout=20) for _ in range(self._sent))


@pytest.fixture
def burst(grpc_door) -> Burst:
    return Burst(grpc_door)


def shapes(result) -> list:
    return json.loads(result.as_numpy("SHAPES")[0][0])


def stats(door, model: str):
    return door.client.get_inference_statistics(model).model_stats[0]


def row(columns: int, rows: int = 1) -> np.ndarray:
    return np.zeros([rows, columns], dtype=np.float32)


def test_requests_of_a_burst_share_an_execution_of_the_preferred_size(grpc_door, burst) -> None:
    before = stats(grpc_door, "batcher")
    for _ in range(8):
        burst.send("batcher", "IN", row(3))
    for result in burst.answers().values():
        assert shapes(result) == [[1, 3]] * 4
    after = stats(grpc_door, "batcher")
    assert after.inference_count - before.inference_count == 8
    assert after.execution_count - before.execution_count == 2
    assert 4 in [entry.batch_size for entry in after.batch_stats]


def test_a_lonely_request_waits_for_company_and_no_longer(grpc_door, burst) -> None:
    start = time.monotonic()
    burst.send("batcher", "IN", row(3))
    (result,) = burst.answers().values()
    assert shapes(result) == [[1, 3]]
    assert 0.35 < time.monotonic() - start < 10


def test_requests_of_unequal_shape_run_together_where_that_is_allowed(burst) -> None:
    for columns in (2, 5, 3, 4):
        burst.send("batcher", "IN", row(columns))
    for result in burst.answers().values():
        assert shapes(result) == [[1, 2], [1, 3], [1, 4], [1, 5]]


def test_a_batch_counts_rows_not_requests(burst) -> None:
    burst.send("batcher", "IN", row(3, rows=3))
    burst.send("batcher", "IN", row(3, rows=1))
    for result in burst.answers().values():
        assert shapes(result) == [[1, 3], [3, 3]]


def test_a_request_larger_than_any_batch_is_refused(door) -> None:
    with pytest.raises(InferenceServerException, match="inference request batch-size must be <= 8 for 'batcher'"):
        door.infer("batcher", {"IN": row(3, rows=9)})


AT_ONCE, HELD = np.zeros([1, 1], dtype=np.float32), np.ones([1, 1], dtype=np.float32)


def until_pending(server, model: str, count: int) -> None:
    """Returns when so many requests wait for the model."""
    line = f'nv_inference_pending_request_count{{model="{model}",version="1"}} {count}'
    deadline = time.monotonic() + 10
    while line not in server.metrics_page():
        assert time.monotonic() < deadline, server.metrics_page()
        time.sleep(0.01)


@pytest.fixture
def hold(server, burst) -> Callable[[str], Callable[[], None]]:
    """Sends a request that keeps an instance of the model busy; what is returned lets it go."""

    def send(model: str) -> Callable[[], None]:
        burst.send(model, "HOLD", HELD, "running")
        file = server.repository / model / "1" / "held"
        until(file.exists)
        return file.unlink

    return send


def test_urgent_requests_go_first(server, burst, hold) -> None:
    let_go = hold("queued")
    burst.send("queued", "HOLD", AT_ONCE, "later", priority=2)
    burst.send("queued", "HOLD", AT_ONCE, "default")
    burst.send("queued", "HOLD", AT_ONCE, "urgent", priority=1)
    until_pending(server, "queued", 3)
    let_go()
    assert list(burst.answers()) == ["running", "urgent", "later", "default"]


def test_a_full_queue_refuses(server, burst, hold) -> None:
    let_go = hold("queued")
    for number in range(3):
        burst.send("queued", "HOLD", AT_ONCE, f"waiting-{number}")
    until_pending(server, "queued", 3)
    burst.send("queued", "HOLD", AT_ONCE, "waiting-3")
    label, refused = burst.next_answer()
    let_go()
    assert label == "waiting-3"
    assert refused.status() == "StatusCode.UNAVAILABLE"
    assert refused.message() == "[request id: waiting-3] Exceeds maximum queue size"
    assert not [answer for answer in burst.answers().values() if isinstance(answer, InferenceServerException)]


def test_a_full_queue_refuses_over_http(server, burst, hold) -> None:
    let_go = hold("queued")
    for number in range(3):
        burst.send("queued", "HOLD", AT_ONCE, f"waiting-{number}")
    until_pending(server, "queued", 3)
    body = {"inputs": [{"name": "HOLD", "shape": [1, 1], "datatype": "FP32", "data": [0]}]}
    status, _, answer = server.ask("POST", "/v2/models/queued/infer", body)
    let_go()
    assert status == 503
    assert json.loads(answer) == {"error": "[request id: <id_unknown>] Exceeds maximum queue size"}
    assert len(burst.answers()) == 4


def test_a_request_that_waits_too_long_is_refused(burst, hold) -> None:
    let_go = hold("queued")
    burst.send("queued", "HOLD", AT_ONCE, "hasty", timeout=50_000)
    burst.send("queued", "HOLD", AT_ONCE, "patient")
    label, refused = burst.next_answer()
    let_go()
    assert label == "hasty"
    assert refused.status() == "StatusCode.UNAVAILABLE"
    assert refused.message().endswith("Request timeout expired")
    assert not isinstance(burst.answers()["patient"], InferenceServerException)


def test_responses_keep_the_order_of_requests_where_that_is_wanted(server, burst, hold) -> None:
    let_go = hold("ordered")
    before = _executions(server, "ordered")
    burst.send("ordered", "HOLD", AT_ONCE, "fast")
    burst.send("ordered", "HOLD", AT_ONCE, "faster")
    server.until(lambda: _executions(server, "ordered") == before + 2)  # by the other instance
    let_go()
    assert list(burst.answers()) == ["running", "fast", "faster"]


def _executions(server, model: str) -> int:
    return int(server.statistics(model)["execution_count"])
