"""The shipped language model, as a client sees it: texts, streams, chats, mistakes, leaving clients, dead workers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from running_server import RunningServer, exchange

PATH = "/v2/models/scribe/generate"
EXAMPLE = Path(__file__).parents[3] / "examples" / "model_repository" / "scribe"


def generate(server: RunningServer, **fields: Any) -> tuple[int, dict[str, Any]]:
    status, _, body = server.ask("POST", PATH, fields)
    return status, json.loads(body)


def stream(server: RunningServer, **fields: Any) -> list[dict[str, Any]]:
    status, headers, body = server.ask("POST", f"{PATH}_stream", {"stream": True, **fields})
    assert status == 200, body
    assert headers["Content-Type"].startswith("text/event-stream")
    events = body.decode().split("\n\n")
    assert events.pop() == ""
    return [json.loads(event.removeprefix("data: ")) for event in events]


def chat(*contents: str) -> str:
    roles = ("user", "assistant")
    return json.dumps([{"role": roles[index % 2], "content": text} for index, text in enumerate(contents)])


def test_a_text_is_continued_and_the_same_again(scribe: RunningServer) -> None:
    status, first = generate(scribe, text_input="Once upon a time", max_tokens=12)
    assert status == 200
    assert first.keys() == {"model_name", "model_version", "text_output"}
    assert len(first["text_output"].split()) >= 5
    assert generate(scribe, text_input="Once upon a time", max_tokens=12) == (200, first)


def test_the_pieces_of_a_stream_are_the_whole(scribe: RunningServer) -> None:
    _, whole = generate(scribe, text_input="The whale", max_tokens=20)
    pieces = stream(scribe, text_input="The whale", max_tokens=20)
    assert len(pieces) >= 10
    assert "".join(piece["text_output"] for piece in pieces) == whole["text_output"]


def test_it_answers_questions_in_a_chat(scribe: RunningServer) -> None:
    status, answer = generate(scribe, messages=chat("What is the capital of France?"), max_tokens=40)
    assert (status, answer["text_output"]) == (200, "The capital of France is Paris.")


def test_a_seed_decides_whatever_else_runs(scribe: RunningServer) -> None:
    fields = {"text_input": "In the beginning", "max_tokens": 16, "temperature": 1.0, "top_p": 0.95, "seed": 7}
    _, alone = generate(scribe, **fields)
    answers: list[tuple[int, dict[str, Any]]] = []
    threads = [
        threading.Thread(target=lambda n=number: answers.append(generate(scribe, **{**fields, "seed": 7 + n % 2})))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    texts = {answer["text_output"] for _, answer in answers}
    assert len(texts) == 2
    assert alone["text_output"] in texts


def test_a_stop_string_ends_the_text_before_it(scribe: RunningServer) -> None:
    _, whole = generate(scribe, text_input="Once upon a time", max_tokens=30)
    word = whole["text_output"].split()[4]
    parameters = {"stop": word, "max_tokens": 30}
    _, stopped = generate(scribe, text_input="Once upon a time", sampling_parameters=json.dumps(parameters))
    assert stopped["text_output"] == whole["text_output"].split(word)[0]


def test_options_that_are_lists_and_objects_stand_beside_the_prompt(scribe: RunningServer) -> None:
    fields = {"text_input": "Once upon a time", "max_tokens": 30}
    whole = generate(scribe, **fields)[1]["text_output"]
    words = whole.split()
    stopped = generate(scribe, **fields, stop=["never written", f" {words[3]}"])[1]["text_output"]
    assert stopped == whole[: whole.index(f" {words[3]}")]
    for options in ({"bad_words": [words[0]]}, {"sampling_parameters": {"bad_words": words[0]}}):
        assert words[0] not in generate(scribe, **fields, **options)[1]["text_output"].split()
    assert generate(scribe, **fields, guided_choice=["yes", "no"])[1]["text_output"] in ("yes", "no")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"text_input": "a", "max_tokens": 0}, "'max_tokens' must be at least 1, found 0"),
        ({"text_input": "a", "temperature": -1}, "'temperature' must be 0 or more"),
        ({"text_input": "a", "max_tokenz": 3}, "there is no option 'max_tokenz'; did you mean 'max_tokens'?"),
        ({"max_tokens": 3}, "one of 'text_input', 'messages' and 'input_ids'"),
        ({"text_input": "word " * 2000}, "the model takes 512"),
        ({"input_ids": [1, 99999]}, "token id 99999 is not one of the 4096"),
        ({"messages": "[]"}, "with at least one"),
        ({"messages": "{"}, "'messages' is no JSON"),
        ({"text_input": "a", "sampling_parameters": "[1]"}, "must be a JSON object"),
    ],
)
def test_mistakes_are_named(scribe: RunningServer, fields: dict[str, Any], words: str) -> None:
    status, answer = generate(scribe, **fields)
    assert status == 400
    assert words in answer["error"]


def test_openais_endpoint_has_a_code_for_prompts_that_are_too_long(scribe: RunningServer) -> None:
    body = {"model": "scribe", "messages": json.loads(chat("word " * 3000))}
    status, _, text = scribe.ask("POST", "/v1/chat/completions", body)
    error = json.loads(text)["error"]
    assert (status, error["code"]) == (400, "context_length_exceeded")
    assert "is longer than the model's context length: the model takes 512" in error["message"]


def test_a_client_that_leaves_frees_what_it_held(scribe: RunningServer) -> None:
    scribe.until(lambda: scribe.metric("vllm:num_requests_running")[_LABELS] == 0)
    connection = scribe.connect()
    body = json.dumps({"text_input": "The", "stream": True, "max_tokens": 500, "ignore_eos": True})
    connection.request("POST", f"{PATH}_stream", body)
    connection.getresponse().read(60)
    connection.close()
    scribe.until(lambda: scribe.metric("vllm:num_requests_running")[_LABELS] == 0)
    assert scribe.metric("vllm:gpu_cache_usage_perc")[_LABELS] == 0


_LABELS = (("model", "scribe"), ("version", "1"))


def test_a_worker_that_dies_amid_streams_is_back_and_clients_hear_of_it(scribe: RunningServer) -> None:
    connection = scribe.connect()
    body = json.dumps({"text_input": "The", "stream": True, "max_tokens": 500, "ignore_eos": True})
    connection.request("POST", f"{PATH}_stream", body)
    response = connection.getresponse()
    response.read(60)
    (worker,) = scribe.children()
    os.kill(worker, signal.SIGKILL)
    rest = response.read().decode()
    assert "error" in rest
    began = time.monotonic()
    scribe.until(lambda: generate(scribe, text_input="Once", max_tokens=2)[0] == 200)
    assert time.monotonic() - began < 20


def test_metrics_count_tokens(scribe: RunningServer) -> None:
    before = scribe.metric("vllm:generation_tokens_total").get(_LABELS, 0.0)
    generate(scribe, text_input="Once", max_tokens=5)
    scribe.until(lambda: scribe.metric("vllm:generation_tokens_total")[_LABELS] >= before + 5)
    connection = scribe.connect()
    assert exchange(connection, "GET", "/v2/models/scribe")[0] == 200
    connection.close()


def test_metrics_tell_why_answers_ended(scribe: RunningServer) -> None:
    def cut_off() -> float:
        return scribe.metric("llm:sequences_finished_total", reason="length").get(_LABELS, 0.0)

    before = cut_off()
    generate(scribe, text_input="Once", max_tokens=3, ignore_eos=True)
    scribe.until(lambda: cut_off() > before)


def test_a_request_is_told_where_its_engine_spent_the_time(scribe: RunningServer) -> None:
    connection = scribe.connect()
    body = json.dumps({"text_input": "Once", "max_tokens": 5, "ignore_eos": True})
    connection.request("POST", PATH, body, {"X-Explain": "1"})
    response = connection.getresponse()
    response.read()
    connection.close()
    engine = json.loads(response.headers["X-Explain"])["engine"]
    times = {"queue_us", "prefill_us", "first_token_us", "output_token_us"}
    assert engine.keys() == times | {"prompt_tokens", "cached_tokens"}
    assert engine["prompt_tokens"] > engine["cached_tokens"] >= 0
    assert engine["first_token_us"] == pytest.approx(engine["queue_us"] + engine["prefill_us"], abs=1)
    assert engine["output_token_us"] > 0


def test_statistics_add_up_what_engines_measure(scribe: RunningServer) -> None:
    def counted() -> dict[str, dict[str, int]]:
        connection = scribe.connect()
        body = exchange(connection, "GET", "/v2/models/scribe/stats")[-1]
        connection.close()
        found: dict[str, dict[str, int]] = json.loads(body)["model_stats"][0]["engine_stats"]
        return found

    generate(scribe, text_input="Once", max_tokens=5, ignore_eos=True)
    before = counted()
    generate(scribe, text_input="Once", max_tokens=5, ignore_eos=True)
    after = counted()
    assert {name: after[name]["count"] - before[name]["count"] for name in after} == {
        "queue": 1,
        "prefill": 1,
        "first_token": 1,
        "output_token": 4,
        "prompt_tokens": 2,
        "cached_tokens": 0,
    }
    assert all(after[name]["ns"] > before[name]["ns"] for name in after if not name.endswith("_tokens"))


def test_the_time_per_token_is_a_histogram_of_gaps(scribe: RunningServer) -> None:
    def gaps() -> float:
        return scribe.metric("vllm:time_per_output_token_seconds_count").get(_LABELS, 0.0)

    scribe.until(lambda: scribe.metric("vllm:num_requests_running")[_LABELS] == 0)
    time.sleep(1)  # until all of them are told
    before = gaps()
    generate(scribe, text_input="Once", max_tokens=9, ignore_eos=True)
    scribe.until(lambda: gaps() == before + 8)


def test_more_than_may_wait_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model_repository" / "scribe"
    shutil.copytree(EXAMPLE, folder)
    config = folder / "config.pbtxt"
    text = config.read_text().replace('string_value: "16"', 'string_value: "1"')
    config.write_text(text + 'parameters { key: "max_waiting" value { string_value: "2" } }\n')
    with RunningServer(tmp_path) as server:
        server.wait_until_listening()
        server.until_ready("scribe")
        found: list[tuple[int, dict[str, Any]]] = []
        fields = {"text_input": "The", "max_tokens": 60, "ignore_eos": True}
        threads = [threading.Thread(target=lambda: found.append(generate(server, **fields))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        answers = sorted(status for status, _ in found)
        assert answers == [200] * 3 + [503] * 5
        assert all("max_waiting" in answer["error"] for status, answer in found if status == 503)
