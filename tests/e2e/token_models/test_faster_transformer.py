"""A GPT-NeoX of FasterTransformer's backend, asked as its identity test asks: a batch of eight prompts of eight ids."""

from __future__ import annotations

import json
import queue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from gptneox_workspace import continued_by_transformers
from running_server import RunningServer
from tiny_models import cached
from tritonclient.utils import InferenceServerException

IDS = np.arange(64, dtype=np.uint32).reshape(8, 8) * 421 + 300
IDS[6:] = IDS[:2]
KINDS = {"uint32": "UINT32", "int32": "INT32", "float32": "FP32", "bool": "BOOL", "uint64": "UINT64"}


def asked(**more: Any) -> dict[str, Any]:
    def each(value: Any, kind: Any) -> Any:
        return np.full((8, 1), value, kind)

    whole = {"input_lengths": 8, "request_output_len": 24, "runtime_top_k": 1, "beam_width": 1, "start_id": 50256}
    real = {"runtime_top_p": 0, "beam_search_diversity_rate": 0, "temperature": 1, "len_penalty": 1}
    words = np.tile(np.array([[[0], [-1]]], np.int32), (8, 1, 1))
    return {
        "input_ids": IDS,
        **{name: each(value, np.uint32) for name, value in whole.items()},
        **{name: each(value, np.float32) for name, value in real.items()},
        "end_id": each(50256, np.uint32),
        "random_seed": each(0, np.uint64),
        "is_return_log_probs": each(True, np.bool_),
        "bad_words_list": words,
        "stop_words_list": words,
        **more,
    }


def tensors(library: Any, arrays: dict[str, Any]) -> list[Any]:
    found = []
    for name, array in arrays.items():
        found.append(library.InferInput(name, array.shape, KINDS[array.dtype.name]))
        found[-1].set_data_from_numpy(array)
    return found


def infer(server: RunningServer, library: Any, port: str, **more: Any) -> Any:
    with library.InferenceServerClient(f"127.0.0.1:{server.ports[port]}") as client:
        return client.infer("fastertransformer", tensors(library, asked(**more)))


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    """What transformers writes."""
    return continued_by_transformers(cached("gptneox"), IDS.tolist())


@pytest.mark.parametrize(("library", "port"), [(httpclient, "http"), (grpcclient, "grpc")])
def test_the_tokens_are_those_of_transformers(
    served: RunningServer, expected: list[list[int]], library: Any, port: str
) -> None:
    result = infer(served, library, port)
    ids = result.as_numpy("output_ids")
    assert (ids.shape, ids.dtype) == ((8, 1, 32), np.uint32)
    assert ids[:, 0].tolist() == expected
    assert result.as_numpy("sequence_length").tolist() == [[32]] * 8
    each = result.as_numpy("output_log_probs")
    assert each.shape == (8, 1, 24)
    np.testing.assert_allclose(result.as_numpy("cum_log_probs"), each.sum(axis=2), rtol=1e-5)
    assert result.as_numpy("response_input_lengths") is None


def test_prompts_without_tokens_begin_with_the_start_of_the_checkpoint(served: RunningServer) -> None:
    start = json.loads((cached("gptneox") / "config.json").read_text())["bos_token_id"]
    arrays = asked(input_lengths=np.zeros((8, 1), np.uint32))
    with httpclient.InferenceServerClient(f"127.0.0.1:{served.ports['http']}") as client:

        def ids(arrays: dict[str, Any]) -> Any:
            return client.infer("fastertransformer", tensors(httpclient, arrays)).as_numpy("output_ids").tolist()

        told = ids({**arrays, "start_id": np.full((8, 1), start, np.uint32)})
        del arrays["start_id"]
        assert ids(arrays) == told
    assert {row[0][0] for row in told} == {start}


def test_beams_stand_side_by_side_the_best_first(served: RunningServer) -> None:
    result = infer(served, grpcclient, "grpc", beam_width=np.full((8, 1), 2, np.uint32))
    ids, sums = result.as_numpy("output_ids"), result.as_numpy("cum_log_probs")
    assert ids.shape == (8, 2, 32)
    assert (ids[:, :, :8] == IDS[:, None]).all()
    assert all(row[0].tolist() != row[1].tolist() for row in ids)
    assert (sums[:, 0] >= sums[:, 1]).all()


def test_top_p_falls_after_the_first_token_until_a_token_brings_it_back(served: RunningServer) -> None:
    """With next to nothing left of it, the most likely token is taken."""
    drawn = {
        "runtime_top_k": np.zeros((8, 1), np.uint32),
        "runtime_top_p": np.full((8, 1), 0.99, np.float32),
        "top_p_decay": np.full((8, 1), 1e-6, np.float32),
        "random_seed": np.arange(8, dtype=np.uint64)[:, None] + 3,
    }
    ids = infer(served, grpcclient, "grpc", **drawn).as_numpy("output_ids")[:, 0]
    prompts = {"input_ids": np.ascontiguousarray(ids[:, :9]), "input_lengths": np.full((8, 1), 9, np.uint32)}
    rest = infer(served, grpcclient, "grpc", **prompts, request_output_len=np.full((8, 1), 23, np.uint32))
    assert rest.as_numpy("output_ids")[:, 0].tolist() == ids.tolist()
    greedy = infer(served, grpcclient, "grpc").as_numpy("output_ids")[:, 0]
    assert any(ids[row, 8] != greedy[row, 8] for row in range(8))
    again = infer(served, grpcclient, "grpc", **drawn, top_p_reset_ids=ids[:, 8:9]).as_numpy("output_ids")[:, 0]
    assert (again[:, 8] == ids[:, 8]).all()
    assert any(again[row, 9] != ids[row, 9] for row in range(8))


def test_beams_follow_length_and_diversity(served: RunningServer) -> None:
    def search(penalty: float, rate: float) -> Any:
        more = {"len_penalty": penalty, "beam_search_diversity_rate": rate}
        arrays = {name: np.full((8, 1), value, np.float32) for name, value in more.items()}
        result = infer(served, grpcclient, "grpc", **arrays, beam_width=np.full((8, 1), 3, np.uint32))
        return result.as_numpy("output_ids"), result.as_numpy("cum_log_probs")

    plain, sums = search(1.0, 0.0)
    diverse, others = search(1.0, -3.0)
    assert (others[:, 0] <= sums[:, 0] + 1e-4).all()

    def firsts(rows: Any) -> int:
        return sum(len(set(row[:, 8].tolist())) for row in rows)

    assert firsts(diverse) > firsts(plain)


def test_a_decoupled_model_sends_the_whole_at_every_token(served: RunningServer) -> None:
    found: queue.Queue[Any] = queue.Queue()
    with grpcclient.InferenceServerClient(f"127.0.0.1:{served.ports['grpc']}") as client:
        client.start_stream(lambda result, error: found.put(error or result))
        client.async_stream_infer("ft_streaming", tensors(grpcclient, asked()))
        results = [found.get(timeout=60) for _ in range(24)]
    assert [int(result.as_numpy("sequence_length")[0, 0]) for result in results] == list(range(9, 33))
    whole = infer(served, grpcclient, "grpc").as_numpy("output_ids")
    assert results[-1].as_numpy("output_ids").tolist() == whole.tolist()
    assert found.empty()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"prompt_learning_task_name_ids": np.zeros((8, 1), np.uint32)}, "no embeddings are put in"),
        ({"request_output_len": np.zeros((8, 1), np.uint32)}, "'request_output_len' must be at least 1"),
        ({"end_id": np.full((8, 1), 10**6, np.uint32)}, "'end_id' must be a token of the vocabulary"),
        ({"start_id": np.full((8, 1), 10**6, np.uint32)}, "'start_id' must be a token of the vocabulary"),
    ],
)
def test_what_cannot_be_followed_is_refused(served: RunningServer, more: dict[str, Any], words: str) -> None:
    with pytest.raises(InferenceServerException, match=words):
        infer(served, httpclient, "http", **more)


def test_the_log_tells_of_ranks(served: RunningServer) -> None:
    assert " runs on 2 ranks" in served.log
