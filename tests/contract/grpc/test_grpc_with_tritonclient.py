"""The official Python client: inference, strings, asynchronous calls, streams, errors, statistics."""

from __future__ import annotations

import queue
import time

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException


@pytest.fixture
def client(listener):
    with triton.InferenceServerClient(listener.address) as client:
        yield client


def tensor(array, datatype: str = "FP32"):
    entry = triton.InferInput("INPUT0", list(array.shape), datatype)
    entry.set_data_from_numpy(array)
    return entry


ARRAY = np.arange(16, dtype=np.float32).reshape(1, 16)


def test_an_inference(client) -> None:
    result = client.infer("ident", [tensor(ARRAY)], request_id="7", outputs=[triton.InferRequestedOutput("OUTPUT0")])
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), ARRAY)
    assert result.get_response().id == "7"


def test_strings(client) -> None:
    words = np.array([["one", "zwölf", ""]], dtype=np.object_)
    result = client.infer("ident", [tensor(words, "BYTES")])
    assert result.as_numpy("OUTPUT0").tolist() == [[b"one", "zwölf".encode(), b""]]


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_requests(client, algorithm) -> None:
    result = client.infer("ident", [tensor(ARRAY)], compression_algorithm=algorithm)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), ARRAY)


def test_parameters_and_response_parameters(client) -> None:
    result = client.infer("params", [tensor(ARRAY)], priority=3, parameters={"a": "b", "n": 5}, sequence_id=9)
    response = result.get_response(as_json=True)
    assert response["parameters"]["a"] == {"string_param": "b"}
    assert response["parameters"]["n"] == {"int64_param": "5"}
    assert response["parameters"]["correlation"] == {"int64_param": "9"}


def test_classification(client) -> None:
    output = triton.InferRequestedOutput("OUTPUT0", class_count=1)
    assert client.infer("ident", [tensor(ARRAY)], outputs=[output]).as_numpy("OUTPUT0").tolist() == [[b"15.000000:15"]]


def test_asynchronous_calls(client) -> None:
    results: queue.Queue = queue.Queue()
    for number in range(20):
        client.async_infer(
            "later",
            [tensor(ARRAY)],
            callback=lambda result, error: results.put((result, error)),
            request_id=str(number),
        )
    found = [results.get(timeout=5) for _ in range(20)]
    assert all(error is None for _, error in found)
    assert {result.get_response().id for result, _ in found} == {str(number) for number in range(20)}


def test_a_client_timeout_is_reported(client) -> None:
    with pytest.raises(InferenceServerException, match="Deadline Exceeded"):
        client.infer("held", [tensor(ARRAY)], client_timeout=0.2)


def test_a_stream_of_decoupled_responses(client) -> None:
    results: queue.Queue = queue.Queue()
    client.start_stream(lambda result, error: results.put((result, error)))
    client.async_stream_infer("repeat", [tensor(ARRAY)], request_id="r", enable_empty_final_response=True)
    client.async_stream_infer("nope", [tensor(ARRAY)], request_id="n")
    found = [results.get(timeout=5) for _ in range(18)]
    errors = [error for _, error in found if error is not None]
    assert [error.message() for error in errors] == ["Request for unknown model: 'nope' is not found"]
    responses = [result.get_response() for result, error in found if error is None]
    values = [response.raw_output_contents for response in responses]
    assert values[:-1] == [[np.float32(n).tobytes()] for n in range(16)]
    finals = [response.parameters["triton_final_response"].bool_param for response in responses]
    assert finals == [False] * 16 + [True]
    client.stop_stream()


def test_stopping_a_stream_with_cancellation_cancels_requests(client, listener) -> None:
    results: queue.Queue = queue.Queue()
    client.start_stream(lambda result, error: results.put((result, error)))
    client.async_stream_infer("endless", [tensor(ARRAY)])
    assert results.get(timeout=5)[1] is None
    client.stop_stream(cancel_requests=True)
    assert results.get(timeout=5)[1] is not None
    end = time.monotonic() + 5
    while not listener.server.inference.cancelled and time.monotonic() < end:
        time.sleep(0.005)  # the client knows of its own cancellation before the server does
    assert len(listener.server.inference.cancelled) == 1


def test_server_and_model_information(client) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("ident")
    assert not client.is_model_ready("nope")
    assert client.get_server_metadata().name == "triton"
    assert client.get_model_metadata("ident", as_json=True)["platform"] == "python"
    assert client.get_model_config("ident").config.max_batch_size == 8
    assert client.get_inference_statistics().model_stats[0].name == "ident"
    assert [entry.name for entry in client.get_model_repository_index().models] == ["ident", "other"]
    assert client.get_log_settings().settings["log_format"].string_param == "default"
    assert list(client.get_trace_settings().settings["trace_level"].value) == ["OFF"]


def test_load_with_files(client, listener) -> None:
    client.load_model("m", config='{"backend":"python"}', files={"file:1/model.py": b"x"})
    assert listener.server.model_control.loaded == [("m", '{"backend":"python"}', {"file:1/model.py": b"x"})]
    client.unload_model("m")
    assert listener.server.model_control.unloaded == [("m", False)]


def test_metadata_is_forwarded(listen) -> None:
    listener = listen(header_forward_pattern="my_.*")
    with triton.InferenceServerClient(listener.address) as client:
        client.infer("params", [tensor(ARRAY)], headers={"my_key": "value", "other": "x"})
    assert listener.server.inference.requests[0].parameters == {"my_key": "value"}
