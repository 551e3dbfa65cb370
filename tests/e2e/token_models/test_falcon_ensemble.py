"""The Falcon ensemble, as its clients see it: texts through the generate endpoint, tensors through both protocols."""

from __future__ import annotations

import json
import queue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from running_server import RunningServer
from tritonclient.utils import InferenceServerException

BODY = {
    "text_input": "What is the height of Eiffel Tower?",
    "max_tokens": 30,
    "bad_words": [""],
    "stop_words": [""],
    "top_k": 10,
    "top_p": 1,
    "end_id": 3,
    "pad_id": 2,
}
PROMPT = np.array([[11, 500, 42, 7]], np.int32)

CONCURRENT: dict[str, dict[str, Any]] = {"http": {"concurrency": 4}, "grpc": {}}


def generate(server: RunningServer, **changes: Any) -> str:
    fields = {key: value for key, value in {**BODY, **changes}.items() if value is not None}
    status, _, body = server.ask("POST", "/v2/models/ensemble/versions/1/generate", fields)
    assert status == 200, body
    return str(json.loads(body)["text_output"])


def infer(server: RunningServer, library: Any, port: str, model: str, **arrays: Any) -> Any:
    with library.InferenceServerClient(f"127.0.0.1:{server.ports[port]}") as client:
        return client.infer(model, tensors(library, arrays))


def tensors(library: Any, arrays: dict[str, Any]) -> list[Any]:
    kinds = {"int32": "INT32", "uint32": "UINT32", "object": "BYTES", "bool": "BOOL", "float32": "FP32"}
    found = []
    for name, array in arrays.items():
        tensor = library.InferInput(name, array.shape, kinds[array.dtype.name])
        tensor.set_data_from_numpy(array)
        found.append(tensor)
    return found


def test_a_prompt_is_continued_the_same_each_time(served: RunningServer) -> None:
    text = generate(served)
    prompt = str(BODY["text_input"])
    assert text.startswith(prompt)
    assert 1 <= len(text[len(prompt) :].split()) <= 30
    assert generate(served) == text
    assert generate(served, random_seed=5) != text


def test_ids_and_words_may_be_left_out(served: RunningServer) -> None:
    assert generate(served, end_id=None, pad_id=None, bad_words=None, stop_words=None) == generate(served)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_tokens": 0}, "'max_tokens' ('request_output_len' of 'tensorrt_llm') must be at least 1, found 0"),
        ({"max_tokens": [3, 4]}, "'max_tokens' ('request_output_len' of 'tensorrt_llm') has 2 values for a prompt"),
        ({"top_p": 3.0}, "'top_p' ('runtime_top_p' of 'tensorrt_llm') within 0 and 1"),
        ({"temperature": -1.0}, "'temperature' must be 0 or more"),
        ({"text_input": ["a", "b"]}, "'text_input' ('QUERY' of 'preprocessing') has 2 texts in each row"),
        ({"text_input": ""}, "'text_input' ('QUERY' of 'preprocessing') has a text without tokens"),
    ],
)
def test_a_mistake_is_told_by_the_name_that_the_client_sent(
    served: RunningServer, changes: dict[str, Any], words: str
) -> None:
    status, _, body = served.ask("POST", "/v2/models/ensemble/versions/1/generate", BODY | changes)
    assert (status, words in json.loads(body)["error"]) == (400, True), body


def test_a_bad_word_is_never_written_and_a_stop_word_ends_the_row(served: RunningServer) -> None:
    end = {"end_id": np.array([[50000]], np.uint32), "runtime_top_k": np.array([[10]], np.uint32)}
    long = {**given(12), "request_output_len": np.array([[12]], np.uint32), **end}
    ids = infer(served, httpclient, "http", "tensorrt_llm", **long).as_numpy("output_ids")[0, 0, 4:].tolist()
    word = np.array([[[ids[2]], [1]]], np.int32)
    others = infer(served, httpclient, "http", "tensorrt_llm", **long, bad_words_list=word).as_numpy("output_ids")
    assert others[0, 0, 4:6].tolist() == ids[:2]
    assert ids[2] not in others[0, 0, 4:].tolist()
    pair = np.array([[[ids[1], ids[2]], [2, -1]]], np.int32)
    stopped = infer(served, httpclient, "http", "tensorrt_llm", **long, stop_words_list=pair).as_numpy("output_ids")
    assert stopped[0, 0, 4:].tolist() == ids[:3]


def test_words_of_texts_become_ids_with_their_ends(served: RunningServer) -> None:
    texts = {"QUERY": np.array([["a"]], np.object_), "BAD_WORDS_DICT": np.array([["station, station"]], np.object_)}
    found = infer(served, httpclient, "http", "preprocessing", **texts, REQUEST_OUTPUT_LEN=np.array([[1]], np.uint32))
    ids, ends = found.as_numpy("BAD_WORDS_IDS")[0].tolist()
    assert [end for end in ends if end > 0][-1] == len(ids)
    assert len([end for end in ends if end > 0]) == 2
    assert found.as_numpy("STOP_WORDS_IDS").tolist() == [[[0], [-1]]]


@pytest.mark.parametrize(
    ("model", "tensors", "words"),
    [
        ("preprocessing", {"QUERY": np.array([[b"\xff"]], np.object_)}, "'utf-8' codec can't decode byte 0xff"),
        ("preprocessing", {"QUERY": np.array([["a", "b"]], np.object_)}, "'QUERY' has 2 texts in each row"),
        ("postprocessing", {"TOKENS_BATCH": np.array([[[5, -4]]], np.int32)}, "TOKENS_BATCH has a number below 0"),
    ],
)
def test_what_is_no_text_and_no_token_is_the_clients_mistake(
    served: RunningServer, model: str, tensors: dict[str, Any], words: str
) -> None:
    length = {"REQUEST_OUTPUT_LEN": np.array([[1]], np.uint32)} if model == "preprocessing" else {}
    with pytest.raises(InferenceServerException, match=words) as refused:
        infer(served, httpclient, "http", model, **tensors, **length)
    assert refused.value.status() == "400"


@pytest.mark.parametrize(("library", "port"), [(httpclient, "http"), (grpcclient, "grpc")])
def test_the_three_models_in_a_row_are_the_ensemble(served: RunningServer, library: Any, port: str) -> None:
    text = np.array([["Explain Cloud Computing"]], np.object_)
    length = np.array([[6]], np.uint32)
    before = infer(served, library, port, "preprocessing", QUERY=text, REQUEST_OUTPUT_LEN=length)
    given = {
        "input_ids": before.as_numpy("INPUT_ID"),
        "input_lengths": before.as_numpy("REQUEST_INPUT_LEN"),
        "request_output_len": before.as_numpy("REQUEST_OUTPUT_LEN"),
    }
    tokens = infer(served, library, port, "tensorrt_llm", **given).as_numpy("output_ids")
    assert tokens.shape == (1, 1, given["input_ids"].size + 6)
    after = infer(served, library, port, "postprocessing", TOKENS_BATCH=tokens).as_numpy("OUTPUT")
    whole = infer(served, library, port, "ensemble", text_input=text, max_tokens=length).as_numpy("text_output")
    assert after.tolist() == whole.tolist()


def test_the_python_model_for_engine_files_is_served_by_the_engine(served: RunningServer) -> None:
    given = {
        "input_ids": np.repeat(PROMPT, 2, axis=0),
        "input_lengths": np.array([[4], [2]], np.int32),
        "request_output_len": np.array([[5], [3]], np.uint32),
        "output_log_probs": np.array([[True], [True]]),
    }
    result = infer(served, httpclient, "http", "session", **given)
    ids, alone = result.as_numpy("output_ids"), infer(served, httpclient, "http", "tensorrt_llm", **given)
    assert ids.shape == (2, 1, 9)
    assert ids[0, 0, :4].tolist() == PROMPT[0].tolist()
    assert ids[0].tolist() == alone.as_numpy("output_ids")[0].tolist()
    assert set(ids[1, 0, 5:].tolist()) == {0}  # the model's end
    assert (result.as_numpy("log_probs")[0] < 0).all()
    assert result.as_numpy("log_probs").shape == (2, 5, 1)
    assert "its model.py runs engine files" in served.log


@pytest.mark.parametrize("model", ["tensorrt_llm", "session"])
@pytest.mark.parametrize(("library", "port"), [(httpclient, "http"), (grpcclient, "grpc")])
def test_ids_are_free_where_nothing_can_be_stopped(served: RunningServer, library: Any, port: str, model: str) -> None:
    arrays = {**given(9), "request_output_len": np.array([[9]], np.uint32)}
    with library.InferenceServerClient(f"127.0.0.1:{served.ports[port]}", **CONCURRENT[port]) as client:
        result = client.infer(model, tensors(library, arrays), request_id="abc")
        assert result.get_response()["id"] == "abc" if port == "http" else result.get_response().id == "abc"
        if port == "http":
            running = [client.async_infer(model, tensors(library, arrays), request_id="1") for _ in range(4)]
            found = [one.get_result().as_numpy("output_ids").tolist() for one in running]
            assert found == [result.as_numpy("output_ids").tolist()] * 4


def stream(server: RunningServer, *requests: tuple[str, dict[str, Any]], count: int, quiet_s: float = 60) -> list[Any]:
    """The first `count` results to requests on one stream, or fewer where none comes for so long."""
    found: queue.Queue[Any] = queue.Queue()
    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}") as client:
        client.start_stream(lambda result, error: found.put(error or result))
        for request_id, arrays in requests:
            client.async_stream_infer("streaming", tensors(grpcclient, arrays), request_id=request_id)
        results: list[Any] = []
        while len(results) < count:
            try:
                results.append(found.get(timeout=quiet_s))
            except queue.Empty:
                break
        return results


def given(count: int, **more: Any) -> dict[str, Any]:
    lengths = {"input_lengths": np.array([[4]], np.int32), "request_output_len": np.array([[count]], np.int32)}
    return {"input_ids": PROMPT, **lengths, **more}


YES = np.array([[True]])


def test_a_stream_has_the_new_tokens_and_the_whole_has_the_prompt(served: RunningServer) -> None:
    pieces = stream(served, ("1", given(6, streaming=YES)), count=6)
    (whole,) = stream(served, ("2", given(6)), count=1)
    tokens = [token for piece in pieces for token in piece.as_numpy("output_ids").reshape(-1).tolist()]
    assert [piece.as_numpy("sequence_length").tolist() for piece in pieces] == [[[1]]] * 6
    assert whole.as_numpy("output_ids").reshape(-1).tolist() == PROMPT[0].tolist() + tokens


def test_a_running_request_can_be_stopped_and_its_id_is_its_own(served: RunningServer) -> None:
    long = given(900, streaming=YES, end_id=np.array([[50000]], np.int32))
    results = stream(served, ("7", long), ("7", given(2)), ("7", {**given(2), "stop": YES}), count=900, quiet_s=3)
    assert len(results) < 800
    assert any("the request id 7 is in use" in str(result) for result in results)
    assert stream(served, ("7", given(2)), count=1)[0].as_numpy("output_ids").shape == (1, 1, 6)


def test_the_id_of_a_stopped_request_is_free_once_the_stop_is_answered(served: RunningServer) -> None:
    found: queue.Queue[Any] = queue.Queue()
    long = tensors(grpcclient, given(900, streaming=YES, end_id=np.array([[50000]], np.int32)))
    stop, short = tensors(grpcclient, {**given(2), "stop": YES}), tensors(grpcclient, given(2))
    with grpcclient.InferenceServerClient(f"127.0.0.1:{served.ports['grpc']}") as client:
        client.start_stream(lambda result, error: found.put(error or result))
        for number in range(10):
            client.async_stream_infer("streaming", long, request_id=str(number))
            found.get(timeout=60)
            client.async_stream_infer("streaming", stop, request_id=str(number), enable_empty_final_response=True)
            while found.get(timeout=60).as_numpy("output_ids") is not None:
                pass
            client.async_stream_infer("streaming", short, request_id=str(number))
            assert found.get(timeout=60).as_numpy("output_ids").shape == (1, 1, 6)  # nothing more of the first


@pytest.mark.parametrize(
    ("request_id", "more", "words"),
    [
        ("a", {}, "the request id must be a number"),
        ("\u0663", {}, "the request id must be a number"),
        (str(2**64), {}, "the request id must be a number without a sign, below 2^64"),
        ("9", {"stop": YES}, "no request with the id 9 is running"),
        ("", {"stop": YES}, "'stop' needs the id"),
        ("", {"beam_width": np.array([[0]], np.int32)}, "'beam_width' must be at least 1"),
        ("", {"bad_words_list": np.array([[[1], [9]]], np.int32)}, "'bad_words_list' has the end 9"),
    ],
)
def test_mistakes_are_named(served: RunningServer, request_id: str, more: dict[str, Any], words: str) -> None:
    (error,) = stream(served, (request_id, given(3, **more)), count=1)
    assert words in str(error)


def test_a_missing_length_is_named(served: RunningServer) -> None:
    status, _, body = served.ask("POST", "/v2/models/tensorrt_llm/generate", {"input_ids": [1, 2], "input_lengths": 2})
    assert (status, b"request_output_len" in body) == (400, True)
