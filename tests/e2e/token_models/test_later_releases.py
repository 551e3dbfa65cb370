"""Later releases of TensorRT-LLM: ids that are texts, other names of inputs, and prompts that are answered apart."""

from __future__ import annotations

import queue
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient
from inflight_server import tensors
from running_server import RunningServer

PROMPTS = np.array([[5, 6, 7, 8], [9, 10, 11, 12]], np.int32)
KEPT = ("output_ids", "batch_index", "sequence_index", "num_input_tokens")


def given(rows: int, count: int, **more: int | bool) -> dict[str, Any]:
    """`end_id` is a token that does not come."""
    kinds = {bool: np.bool_, int: np.int32}
    values = {"input_lengths": 4, "request_output_len": count, "end_id": 50431, **more}
    arrays = {name: np.array([[value]] * rows, kinds[type(value)]) for name, value in values.items()}
    if "seed" in arrays:
        arrays["seed"] = arrays["seed"].astype(np.uint64)
    return {"input_ids": PROMPTS[:rows], **arrays}


def ask(server: RunningServer, *requests: tuple[str, dict[str, Any]]) -> list[Any]:
    """All responses to requests that are sent one behind the other, each as its tensors; errors as they are."""
    found: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}") as client:
        client.start_stream(lambda result, error: found.put(error or result))
        for request_id, arrays in requests:
            client.async_stream_infer("later", tensors(grpcclient, arrays), request_id=request_id)
        client.stop_stream()
    results = []
    while not found.empty():
        result = found.get()
        arrays = {} if isinstance(result, Exception) else {name: result.as_numpy(name) for name in KEPT}
        kept = {name: array.reshape(-1).tolist() for name, array in arrays.items() if array is not None}
        results.append(result if isinstance(result, Exception) else kept)
    return results


def written(results: list[Any], place: int, number: int = 0) -> list[int]:
    own = [result for result in results if (result["batch_index"], result["sequence_index"]) == ([place], [number])]
    return [token for result in own for token in result["output_ids"]]


def test_each_prompt_of_a_batch_has_responses_of_its_own(served: RunningServer) -> None:
    together = ask(served, ("", given(2, 5, streaming=True)))
    assert len(together) == 10
    for place in range(2):
        alone = {**given(1, 5, streaming=True), "input_ids": PROMPTS[place : place + 1]}
        assert written(together, place) == written(ask(served, ("", alone)), 0)
    whole = ask(served, ("", given(2, 5, return_num_input_tokens=True)))
    assert sorted(result["batch_index"] for result in whole) == [[0], [1]]
    assert [written(whole, place) for place in range(2)] == [written(together, place) for place in range(2)]
    assert [result["num_input_tokens"] for result in whole] == [[4], [4]]


def test_a_prompt_may_be_continued_several_times(served: RunningServer) -> None:
    results = ask(served, ("", given(1, 8, streaming=True, runtime_top_k=50, seed=3, num_return_sequences=3)))
    texts = [written(results, 0, number) for number in range(3)]
    assert [len(text) for text in texts] == [8, 8, 8]
    assert len({tuple(text) for text in texts}) == 3
    for seed, text in zip((3, 4, 5), texts, strict=True):
        assert written(ask(served, ("", given(1, 8, runtime_top_k=50, seed=seed))), 0) == text


def test_an_id_is_any_text_and_a_request_that_has_ended_may_be_stopped(served: RunningServer) -> None:
    assert len(ask(served, ("a-b-c", given(1, 2, streaming=True)))) == 2
    (answer,) = ask(served, ("a-b-c", given(1, 2, stop=True)))
    assert answer == {}
    (error,) = ask(served, ("", given(1, 2, stop=True)))
    assert "'stop' needs the id" in str(error)


def test_a_stop_ends_all_texts_of_a_request(served: RunningServer) -> None:
    results = ask(served, ("both", given(2, 900, streaming=True)), ("both", given(1, 2, stop=True)))
    assert len(results) < 1600
    assert len(ask(served, ("both", given(1, 2, streaming=True)))) == 2


def test_what_the_parameters_of_the_model_do_not_allow_is_refused(served: RunningServer) -> None:
    (beams,) = ask(served, ("", given(1, 5, beam_width=3)))
    assert "'beam_width' is 3, and the model's parameter 'max_beam_width' allows 2" in str(beams)
    (tokens,) = ask(served, ("", given(1, 1021)))
    assert "'request_output_len' is 1021 behind a prompt of 4 tokens, and the model and its cache take 1024" in str(
        tokens
    )
    assert len(written(ask(served, ("", given(1, 5, beam_width=2))), 0)) == 10
