"""Streams of the official gRPC client, and generate over plain HTTP."""

from __future__ import annotations

import json
import queue
import time

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException
from waiting import until


class Stream:
    """A stream that is open, and what came out of it."""

    def __init__(self, address: str, **options) -> None:
        self.client = triton.InferenceServerClient(address)
        self.found: queue.Queue = queue.Queue()
        self.client.start_stream(lambda result, error: self.found.put((result, error)), **options)

    def send(self, model: str, inputs: dict[str, np.ndarray], **options) -> None:
        tensors = []
        for name, array in inputs.items():
            datatype = {"f": "FP32", "i": "INT32", "O": "BYTES"}[array.dtype.kind]
            entry = triton.InferInput(name, list(array.shape), datatype)
            entry.set_data_from_numpy(array)
            tensors.append(entry)
        self.client.async_stream_infer(model, tensors, **options)

    def take(self, count: int) -> list:
        """That many responses, errors as their text."""
        return [self._take() for _ in range(count)]

    def _take(self):
        result, error = self.found.get(timeout=10)
        return error.message() if error is not None else result

    def numbers(self, count: int, output: str = "OUT") -> list[int]:
        return [int(result.as_numpy(output)[0]) for result in self.take(count)]

    def is_quiet(self) -> bool:
        return self.found.empty()


@pytest.fixture
def stream(server):
    made = Stream(server.grpc)
    yield made
    made.client.stop_stream()
    made.client.close()


def count_to(number: int, **more: float) -> dict[str, np.ndarray]:
    inputs = {"COUNT": np.array([number], dtype=np.int32)}
    if "fail_at" in more:
        inputs["FAIL_AT"] = np.array([more["fail_at"]], dtype=np.int32)
    if "pause_s" in more:
        inputs["PAUSE_S"] = np.array([more["pause_s"]], dtype=np.float32)
    return inputs


def is_final(result) -> bool:
    return result.get_response().parameters["triton_final_response"].bool_param


@pytest.mark.parametrize("count", [0, 1, 5, 200])
def test_a_decoupled_model_answers_as_often_as_it_likes(stream, count) -> None:
    stream.send("count", count_to(count), request_id="c", enable_empty_final_response=True)
    found = stream.take(count + 1)
    assert [int(result.as_numpy("OUT")[0]) for result in found[:-1]] == list(range(count))
    assert [is_final(result) for result in found] == [False] * count + [True]
    assert found[-1].get_response().id == "c"
    assert len(found[-1].get_response().outputs) == 0


def test_no_end_is_sent_that_was_not_asked_for(stream) -> None:
    stream.send("count", count_to(0))
    stream.send("count", count_to(2))
    stream.send("labels", {"IN": np.zeros([1, 4], dtype=np.float32)})
    assert len(stream.take(3)) == 3
    time.sleep(0.05)
    assert stream.is_quiet()


def test_models_that_answer_once_answer_in_order(stream) -> None:
    for number in range(20):
        model, name = (("describe", "WAIT_S"), ("overlap", "SLEEP_S"))[number % 2]
        wait = np.array([0.1 if number == 0 else 0], dtype=np.float32)
        stream.send(model, {name: wait}, request_id=str(number))
    found = stream.take(20)
    assert [result.get_response().id for result in found] == [str(number) for number in range(20)]
    assert all(is_final(result) for result in found)


def test_several_models_take_turns_in_one_stream(stream) -> None:
    stream.send("count", count_to(5, pause_s=0.02), request_id="slow")
    stream.send("count", count_to(3), request_id="fast")
    stream.send("types", {"IN_FP32": np.array([1], dtype=np.float32)}, request_id="copy")
    found = [result.get_response() for result in stream.take(9)]
    by_id = {name: [response for response in found if response.id == name] for name in ("slow", "fast", "copy")}
    assert {name: len(responses) for name, responses in by_id.items()} == {"slow": 5, "fast": 3, "copy": 1}
    slow = [response.raw_output_contents[0][0] for response in by_id["slow"]]
    assert slow == [0, 1, 2, 3, 4]
    assert found[-1].id == "slow"


def test_an_error_does_not_end_the_stream(stream) -> None:
    stream.send("nosuch", {})
    assert stream.take(1) == ["Request for unknown model: 'nosuch' is not found"]
    stream.send("failing", {"MODE": np.array([1], dtype=np.int32)})
    assert stream.take(1) == ["one is not found"]
    stream.send("count", count_to(3, fail_at=1))
    first, error, last = stream.take(3)
    assert error == "1 is unlucky"
    assert [int(first.as_numpy("OUT")[0]), int(last.as_numpy("OUT")[0])] == [0, 2]


def test_an_error_ends_the_stream_where_the_client_says_so(server) -> None:
    stream = Stream(server.grpc, headers={"triton_grpc_error": "true"})
    stream.send("failing", {"MODE": np.array([1], dtype=np.int32)})
    _, error = stream.found.get(timeout=10)
    assert error.status() == "StatusCode.NOT_FOUND"
    assert error.message() == "one is not found"
    stream.client.stop_stream()
    stream.client.close()


def test_cancelling_a_stream_cancels_its_requests(server, grpc_door) -> None:
    before = grpc_door.text("describe", {})["cancelled"]
    stream = Stream(server.grpc)
    stream.send("describe", {"WAIT_S": np.array([20], dtype=np.float32)})
    stream.send("count", count_to(100_000, pause_s=0.01))
    assert stream.numbers(1) == [0]
    stream.client.stop_stream(cancel_requests=True)
    until(lambda: grpc_door.text("describe", {})["cancelled"] == before + 1)
    stream.client.close()


def test_a_stream_has_a_time_limit(server) -> None:
    stream = Stream(server.grpc, stream_timeout=0.3)
    stream.send("count", count_to(100_000, pause_s=0.01))
    assert stream.numbers(1) == [0]
    texts = []
    while not texts:
        _, error = stream.found.get(timeout=10)
        texts += [] if error is None else [error.message()]
    assert "Deadline Exceeded" in texts[0]
    stream.client.stop_stream()
    stream.client.close()


def test_a_stream_may_be_compressed_and_carry_headers(server) -> None:
    stream = Stream(server.grpc, compression_algorithm="gzip", headers={"x-key": "forwarded"})
    stream.send("describe", {"IN": np.array([b"x" * 5000], dtype=object)}, parameters={"n": 3})
    (result,) = stream.take(1)
    assert json.loads(result.as_numpy("TEXT")[0])["parameters"] == {"n": 3, "x-key": "forwarded"}
    stream.client.stop_stream()
    stream.client.close()


def test_large_tensors_pass_through_a_stream(stream) -> None:
    given = np.arange(1_000_000, dtype=np.float32)
    for _ in range(3):
        stream.send("types", {"IN_FP32": given})
    for result in stream.take(3):
        np.testing.assert_array_equal(result.as_numpy("OUT_FP32"), given)


def test_two_streams_of_one_client_are_refused_by_the_client(stream) -> None:
    with pytest.raises(InferenceServerException):
        stream.client.start_stream(lambda result, error: None)


def test_generate_makes_one_object_of_one_response(server) -> None:
    status, headers, body = server.ask("POST", "/v2/models/labels/generate", {"IN": [1, 2, 3, 4], "id": "7"})
    assert (status, headers["content-type"]) == (200, "application/json")
    assert json.loads(body) == {"id": "7", "model_name": "labels", "model_version": "1", "OUT": [1.0, 2.0, 3.0, 4.0]}


def test_generate_stream_sends_an_event_per_response(server) -> None:
    status, headers, body = server.ask("POST", "/v2/models/count/generate_stream", {"COUNT": 3})
    assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    events = [json.loads(event.removeprefix(b"data: ")) for event in body.strip().split(b"\n\n")]
    assert [event["OUT"] for event in events] == [0, 1, 2]


def test_generate_stream_tells_errors_as_events(server) -> None:
    status, _, body = server.ask("POST", "/v2/models/count/generate_stream", {"COUNT": 3, "FAIL_AT": 1})
    assert status == 200
    assert body.split(b"\n\n")[1] == b'data: {"error":"1 is unlucky"}'
    status, _, body = server.ask("POST", "/v2/models/count/generate_stream", {"COUNT": 3, "FAIL_AT": 0})
    assert status == 400


def test_generate_refuses_what_is_not_one_response(server) -> None:
    _, _, body = server.ask("POST", "/v2/models/count/generate", {"COUNT": 2})
    assert b"generate expects model to produce exactly 1 response" in body
    status, _, body = server.ask("POST", "/v2/models/nosuch/generate", {"COUNT": 2})
    assert (status, json.loads(body)["error"]) == (404, "Request for unknown model: 'nosuch' is not found")
