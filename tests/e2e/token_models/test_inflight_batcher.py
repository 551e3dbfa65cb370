"""The example of in-flight batching, decoupled as it is shipped: ensemble, BLS model and clients, streams and whole."""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from inflight_server import PROMPT, asked, copy_example, events, fields, run_client, streamed, text_of
from running_server import RunningServer
from tiny_models import tiny_causal_lm
from tritonclient.utils import InferenceServerException
from whole_words import keep_words_whole

MODELS = pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
YES = np.array([[True]])


@pytest.fixture(scope="module")
def inflight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("inflight")
    repository = copy_example(folder)
    keep_words_whole(tiny_causal_lm(repository / "tensorrt_llm" / "1" / "model", "llama-wide"))
    accumulating = repository / "accumulating"
    (accumulating / "1").mkdir(parents=True)
    config = (repository / "tensorrt_llm_bls" / "config.pbtxt").read_text()
    config = config.replace('name: "tensorrt_llm_bls"', 'name: "accumulating"').replace('"false"', '"true"', 1)
    (accumulating / "config.pbtxt").write_text(config)
    (accumulating / "1" / "model.py").write_text((repository / "tensorrt_llm_bls" / "1" / "model.py").read_text())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        with RunningServer(folder) as server:
            server.wait_until_listening(120)
            yield server


def whole_text(server: RunningServer, model: str = "ensemble", **more: Any) -> str:
    status, _, body = server.ask("POST", f"/v2/models/{model}/generate", fields(**more))
    assert status == 200, body
    return str(json.loads(body)["text_output"])


@MODELS
def test_a_whole_answer_begins_with_its_prompt_unless_that_is_left_out(inflight: RunningServer, model: str) -> None:
    text = whole_text(inflight, model)
    assert text.startswith(PROMPT)
    assert len(text.removeprefix(PROMPT).split()) == 12
    assert whole_text(inflight, model, exclude_input_in_output=True) == text.removeprefix(PROMPT)
    (result,) = streamed(inflight, model, asked())
    assert text_of(result) == text


@MODELS
def test_the_pieces_of_a_stream_are_the_whole(inflight: RunningServer, model: str) -> None:
    answer = whole_text(inflight, model).removeprefix(PROMPT)
    over_http = [event["text_output"] for event in events(inflight, model, fields(stream=True))]
    over_grpc = [text_of(result) for result in streamed(inflight, model, asked(stream=YES))]
    assert over_http == over_grpc
    assert len(over_grpc) == 12
    assert "".join(over_grpc) == answer


def test_an_accumulating_stream_has_the_text_so_far(inflight: RunningServer) -> None:
    texts = [event["text_output"] for event in events(inflight, "accumulating", fields(stream=True))]
    assert len(texts) == 12
    assert all(after.startswith(before) for before, after in pairwise(texts))
    assert texts[-1] == whole_text(inflight).removeprefix(PROMPT)


@MODELS
def test_words_and_biases_reach_the_engine(inflight: RunningServer, model: str) -> None:
    words = whole_text(inflight, model, exclude_input_in_output=True).split()
    banned = whole_text(inflight, model, exclude_input_in_output=True, bad_words=[words[1], words[4]])
    assert banned.split()[0] == words[0]
    assert not {words[1], words[4]} & set(banned.split())
    stopped = whole_text(inflight, model, exclude_input_in_output=True, stop_words=["never", words[3]])
    assert stopped.split() == words[:4]
    bias = {"embedding_bias_words": [f" {words[7]}"], "embedding_bias_weights": [100.0]}
    assert set(whole_text(inflight, model, exclude_input_in_output=True, **bias).split()) == {words[7]}


@MODELS
def test_probabilities_are_told(inflight: RunningServer, model: str) -> None:
    (result,) = streamed(inflight, model, asked(return_log_probs=YES))
    each = result.as_numpy("output_log_probs")
    assert each.shape[-1] == 12
    assert (each < 0).all()
    np.testing.assert_allclose(result.as_numpy("cum_log_probs").reshape(-1), each.reshape(1, -1).sum(axis=1), rtol=1e-5)


@MODELS
def test_two_beams_are_two_texts(inflight: RunningServer, model: str) -> None:
    (result,) = streamed(inflight, model, asked(beam_width=np.array([[2]], np.int32)))
    texts = [text.decode() for text in result.as_numpy("text_output")]
    assert len(set(texts)) == 2
    assert all(text.startswith(PROMPT) for text in texts)


@MODELS
def test_what_cannot_be_followed_is_told(inflight: RunningServer, model: str) -> None:
    with pytest.raises(InferenceServerException, match="'prompt_vocab_size' cannot be followed"):
        streamed(inflight, model, asked(prompt_vocab_size=np.array([[4]], np.int32)))
    with pytest.raises(InferenceServerException, match="a weight for each word"):
        streamed(inflight, model, asked(embedding_bias_words=np.array([["a"]], np.object_)))


@MODELS
def test_a_mistake_of_the_client_is_told_as_one(inflight: RunningServer, model: str) -> None:
    status, _, body = inflight.ask("POST", f"/v2/models/{model}/generate", fields(max_tokens=10**6))
    assert (status, "'max_tokens'" in body.decode(), " is 1000000 behind" in body.decode()) == (400, True, True), body
    status, _, body = inflight.ask("POST", f"/v2/models/{model}/generate", fields(top_p=3.0))
    assert (status, "'top_p'" in body.decode()) == (400, True), body
    status, _, body = inflight.ask("POST", f"/v2/models/{model}/generate", fields(max_tokens=[4, 4]))
    assert (status, b"unexpected shape for input 'max_tokens'" in body) == (400, True), body
    assert re.search(rb"request id: \d", body) is None, body  # the client has sent none
    assert b"when running inference" not in body, body


@MODELS
def test_an_option_that_the_model_does_not_declare_is_refused(inflight: RunningServer, model: str) -> None:
    status, _, body = inflight.ask("POST", f"/v2/models/{model}/generate", fields(num_return_sequences=2))
    assert (status, b"'num_return_sequences' came as a parameter" in body) == (400, True), body
    status, _, body = inflight.ask("POST", f"/v2/models/{model}/generate", fields(return_context_logits=True))
    assert (status, b"'return_context_logits' cannot be followed: no logits" in body) == (400, True), body
    for name in ("beam_search_diversity_rate", "top_p_decay"):
        status, _, body = inflight.ask("POST", f"/v2/models/{model}/generate", fields(**{name: 0.5}))
        assert (status, f"'{name}' came as a parameter".encode() in body) == (400, True), body


@MODELS
def test_an_option_that_changes_nothing_here_is_let_be(inflight: RunningServer, model: str) -> None:
    text = whole_text(inflight, model)
    whole = {"beam_search_diversity_rate": 0.0, "top_p_decay": 1.0}  # what they are where nobody sets them
    assert whole_text(inflight, model, score_threshold=0.5, far=1e300, many=2**70, **whole) == text


@MODELS
def test_an_option_of_openais_api_is_followed_or_refused_by_its_name(inflight: RunningServer, model: str) -> None:
    body = {"model": model, "prompt": [PROMPT, PROMPT], "max_tokens": 4, "seed": -1, "top_k": -1, "temperature": 1.0}
    neutral = {"min_p": 0.0, "logit_bias": {}, "use_beam_search": False, "num_beams": 1, "skip_special_tokens": True}
    status, _, text = inflight.ask("POST", "/v1/completions", {**body, **neutral})
    assert status == 200, text
    answer = json.loads(text)
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["length", "length"]
    assert [len(choice["text"].split()) for choice in answer["choices"]] == [4, 4]
    assert answer["usage"] == {"prompt_tokens": 2 * 6, "completion_tokens": 8, "total_tokens": 20}
    for name, value in {"min_p": 0.1, "skip_special_tokens": False}.items():
        status, _, text = inflight.ask("POST", "/v1/completions", {**body, name: value})
        assert (status, json.loads(text)["error"]["param"]) == (400, name)


@MODELS
def test_a_text_of_openais_api_that_has_no_room_is_told_by_its_code(inflight: RunningServer, model: str) -> None:
    body = {"model": model, "prompt": PROMPT, "max_tokens": 100_000}
    status, _, text = inflight.ask("POST", "/v1/completions", body)
    error = json.loads(text)["error"]
    assert (status, error["code"]) == (400, "context_length_exceeded")
    assert "'max_tokens'" in error["message"]
    body = {"model": model, "prompt": PROMPT * 1000, "max_tokens": 1}
    status, _, text = inflight.ask("POST", "/v1/completions", body)
    error = json.loads(text)["error"]
    assert (status, error["code"], error["param"]) == (400, "context_length_exceeded", None)
    assert re.search(r"the prompt has \d{4,} tokens, .* what the model and its cache take: \d+$", error["message"])


@MODELS
def test_a_text_of_openais_api_that_ends_at_the_number_sent_for_it_was_cut(inflight: RunningServer, model: str) -> None:
    body = {"model": model, "prompt": PROMPT, "ignore_eos": True}
    status, _, text = inflight.ask("POST", "/v1/completions", body)
    answer = json.loads(text)
    assert (status, answer["usage"]["completion_tokens"]) == (200, 256)
    assert answer["choices"][0]["finish_reason"] == "length"


@MODELS
def test_a_stream_of_openais_api_ends_before_a_stop_text_that_the_model_spells_otherwise(
    inflight: RunningServer, model: str
) -> None:
    def written(**more: Any) -> tuple[str, str]:
        body = {"model": model, "prompt": PROMPT, "max_tokens": 12, "stream": True, **more}
        status, _, text = inflight.ask("POST", "/v1/completions", body)
        assert status == 200, text
        events = [line.removeprefix(b"data: ") for line in text.split(b"\n\n") if line]
        assert events.pop() == b"[DONE]"
        choices = [choice for event in events for choice in json.loads(event)["choices"]]
        return "".join(choice["text"] for choice in choices), choices[-1]["finish_reason"]

    whole, _ = written()
    words = whole.split()
    for stop in (words[3], words[3][1:]):
        assert written(stop=[stop, "never written"]) == (whole[: whole.index(stop)], "stop")


def test_a_bias_is_as_wide_as_the_vocabulary(inflight: RunningServer) -> None:
    body = {"input_ids": [5, 6], "input_lengths": 2, "request_output_len": 2, "embedding_bias": [1.0, 2.0]}
    status, _, answer = inflight.ask("POST", "/v2/models/tensorrt_llm/generate", body)
    assert (status, b"'embedding_bias' must be a number for each of the 50432 tokens" in answer) == (400, True), answer


def test_a_bls_request_has_one_prompt(inflight: RunningServer) -> None:
    arrays = {name: np.repeat(array, 2, axis=0) for name, array in asked().items()}
    with pytest.raises(InferenceServerException, match="a request has one prompt, found 2"):
        streamed(inflight, "tensorrt_llm_bls", arrays)


def test_the_client_streams_and_gets_what_it_gets_at_once(inflight: RunningServer) -> None:
    folder = inflight.log_path.parent / "model_repository" / "tensorrt_llm" / "1" / "model"
    words = ["-u", f"127.0.0.1:{inflight.ports['grpc']}", "--tokenizer_dir", str(folder)]
    done = run_client("inflight_batcher_llm_client.py", *words, "--streaming", "--check-output")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "========="
    assert "PASS!" in lines
    (ids,) = json.loads(next(line for line in lines if line.startswith("output_ids = ")).removeprefix("output_ids = "))
    assert len(ids) > 16
    assert "Input: Born in north-east France, Soyer trained as a" in lines


def test_the_client_stops_a_request(inflight: RunningServer) -> None:
    folder = inflight.log_path.parent / "model_repository" / "tensorrt_llm" / "1" / "model"
    words = ["-u", f"127.0.0.1:{inflight.ports['grpc']}", "--tokenizer_dir", str(folder), "--streaming"]
    done = run_client("inflight_batcher_llm_client.py", *words, "--stop-after-ms", "200", "--request-output-len", "900")
    assert done.returncode == 0, done.stdout + done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("output_ids = "))
    assert 20 < len(json.loads(line.removeprefix("output_ids = "))[0]) < 800
    assert done.stdout.count("Got cancellation response from server") == 1


def test_the_client_takes_a_stop_that_comes_too_late_for_no_error(inflight: RunningServer) -> None:
    folder = inflight.log_path.parent / "model_repository" / "tensorrt_llm" / "1" / "model"
    words = ["-u", f"127.0.0.1:{inflight.ports['grpc']}", "--tokenizer_dir", str(folder), "--streaming"]
    done = run_client("inflight_batcher_llm_client.py", *words, "--stop-after-ms", "3000", "--request-output-len", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("The request had ended before it could be stopped") == 1
    line = next(line for line in done.stdout.splitlines() if line.startswith("output_ids = "))
    assert len(json.loads(line.removeprefix("output_ids = "))[0]) > 1


def test_many_streams_run_side_by_side_and_each_has_its_own(inflight: RunningServer) -> None:
    prompts = [f"{number} {PROMPT}" for number in range(12)]

    def ask(prompt: str) -> str:
        return "".join(text_of(one) for one in streamed(inflight, "tensorrt_llm_bls", asked(prompt, stream=YES)))

    with ThreadPoolExecutor(12) as threads:
        texts = list(threads.map(ask, prompts))
    assert texts == [ask(prompt) for prompt in prompts]


def written_tokens(server: RunningServer) -> float:
    """All that the engine has written, once that stays the same; the metric is told twice a second."""
    found, before = -1.0, -2.0
    while found != before:
        before = found
        time.sleep(1.2)
        found = server.value("vllm:generation_tokens_total", model="tensorrt_llm", version="1")
    return found


@MODELS
@pytest.mark.parametrize("is_stream", [True, False])
def test_a_client_that_leaves_ends_the_work(inflight: RunningServer, model: str, is_stream: bool) -> None:
    before = written_tokens(inflight)
    with closing(http.client.HTTPConnection("127.0.0.1", inflight.ports["http"], timeout=60)) as connection:
        connection.request("POST", f"/v2/models/{model}/generate_stream", json.dumps(fields(1000, stream=is_stream)))
        if is_stream:
            with closing(connection.getresponse()) as response:
                assert response.read(64).startswith(b"data: ")
        else:
            time.sleep(0.1)  # there is nothing to be seen from here before the end
    assert 0 < written_tokens(inflight) - before < 1000


def test_statistics_have_what_the_engine_measures(inflight: RunningServer) -> None:
    whole_text(inflight)
    _, _, body = inflight.ask("GET", "/v2/models/tensorrt_llm/stats")
    found = json.loads(body)["model_stats"][0]["engine_stats"]
    assert found["first_token"]["ns"] > 0
    assert found["output_token"]["count"] >= 3
    assert found["prompt_tokens"]["count"] > 0
