"""The transformers backend behind a real server: short configurations, concurrent clients, streams, clear errors."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running_server import RunningServer
from tiny_models import tiny_causal_lm
from tiny_task_models import task_model

pytestmark = [
    pytest.mark.skipif(find_spec("transformers") is None, reason="the library is not installed"),
    pytest.mark.timeout(300),  # workers that import torch, several at once
]

NEW_TOKENS = 12
FAILURES = {
    "no_folder": ('parameters { key: "model" value { string_value: "/nowhere/at/all" } }', "there is no folder"),
    "no_task": (
        'parameters { key: "model" value { string_value: "MODEL" } } '
        'parameters { key: "task" value { string_value: "text-clasification" } }',
        "did you mean 'text-classification'?",
    ),
}


def write(repository: Path, name: str, config: str) -> None:
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(f'backend: "transformers"\n{config}')


def parameter(key: str, value: object) -> str:
    return f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("served")
    repository = folder / "model_repository"
    llama = tiny_causal_lm(folder / "llama", "llama")
    write(repository, "writer", parameter("model", llama) + parameter("max_new_tokens", NEW_TOKENS))
    write(repository, "teller", parameter("model", llama) + "model_transaction_policy { decoupled: true }")
    write(repository, "judge", "")
    shutil.copytree(task_model("bert-classifier"), repository / "judge" / "1", dirs_exist_ok=True)
    shutil.copytree(task_model("bert-classifier"), repository / "saved")
    shutil.copytree(llama, repository / "dropped" / "1")
    for name, (config, _) in FAILURES.items():
        write(repository, name, config.replace("MODEL", str(llama)))
    with RunningServer(folder, "--exit-on-error=false") as server:
        server.wait_until_listening(timeout_s=200)
        for name in ("writer", "teller", "judge", "saved", "dropped"):
            server.until_ready(name)
        yield server


def generate(server: RunningServer, model: str, **fields: Any) -> tuple[int, dict[str, Any]]:
    status, _, body = server.ask("POST", f"/v2/models/{model}/generate", fields)
    return status, json.loads(body)


def test_the_shortest_configuration_is_completed(server: RunningServer) -> None:
    config = json.loads(server.ask("GET", "/v2/models/writer/config")[2])
    assert config["max_batch_size"] == 32
    assert config["dynamic_batching"]["max_queue_delay_microseconds"] == 2000
    assert [entry["name"] for entry in config["input"]] == ["text_input", "stop"]
    assert [entry["name"] for entry in config["output"]] == ["text_output"]
    assert "writer" in server.log
    assert "million parameters" in server.log


def test_a_version_folder_with_the_files_needs_no_parameter(server: RunningServer) -> None:
    status, answer = generate(server, "judge", text="the ship is fast")
    assert (status, answer["label"] in {"negative", "neutral", "positive"}) == (200, True)
    assert 0 < answer["score"] <= 1


def test_a_folder_that_was_saved_is_served_without_any_configuration(server: RunningServer) -> None:
    for name in ("saved", "dropped"):
        config = json.loads(server.ask("GET", f"/v2/models/{name}/config")[2])
        assert (config["backend"], config["max_batch_size"]) == ("transformers", 32)
        assert json.loads(server.ask("GET", f"/v2/models/{name}")[2])["versions"] == ["1"]
    told = "the ship is fast"
    answers = [generate(server, name, text=told)[1] for name in ("saved", "judge")]
    assert answers[0]["score"] == pytest.approx(answers[1]["score"], rel=1e-5)
    assert answers[0]["label"] == answers[1]["label"]
    wish = {"text_input": "I am", "max_new_tokens": 4}
    texts = [generate(server, name, **wish)[1]["text_output"] for name in ("dropped", "writer")]
    assert texts[0] == texts[1] != ""


def test_sixteen_clients_at_once_each_get_their_own_text(server: RunningServer) -> None:
    things = "ships shops dogs foxes servers laptops towers schools stations kids clouds names times tests homes help"
    prompts = [
        f"{'Once upon a time. ' * (index % 4)}Tell me about {thing}" for index, thing in enumerate(things.split())
    ]
    alone = [generate(server, "writer", text_input=prompt)[1]["text_output"] for prompt in prompts]
    before = server.statistics("writer")
    barrier = threading.Barrier(len(prompts))

    def ask(prompt: str) -> str:
        barrier.wait()
        status, answer = generate(server, "writer", text_input=prompt)
        assert status == 200, answer
        return str(answer["text_output"])

    with ThreadPoolExecutor(len(prompts)) as clients:
        together = list(clients.map(ask, prompts))
    assert together == alone
    assert len(set(alone)) > len(prompts) // 2
    after = server.statistics("writer")
    assert after["inference_count"] - before["inference_count"] == 16
    assert after["execution_count"] - before["execution_count"] <= 8


def test_settings_travel_with_the_request(server: RunningServer) -> None:
    whole = generate(server, "writer", text_input="Hello")[1]["text_output"]
    short = generate(server, "writer", text_input="Hello", max_new_tokens=3)[1]["text_output"]
    assert whole.startswith(short)
    assert len(short) < len(whole)
    sampled = {"temperature": 4.0, "top_k": 500, "top_p": 0.99, "seed": 3}
    one, two = (generate(server, "writer", text_input="Hello", parameters=sampled)[1] for _ in range(2))
    assert one["text_output"] == two["text_output"] != whole
    stop = whole.split()[2]
    assert (
        generate(server, "writer", text_input="Hello", stop=[stop, "x" * 50])[1]["text_output"]
        == whole[: whole.index(stop)]
    )
    status, answer = generate(server, "writer", text_input="Hello", top_p=7)
    assert (status, answer["error"]) == (400, "'top_p' must be above 0 and at most 1, found 7.0")


def events(server: RunningServer, **fields: Any) -> list[dict[str, Any]]:
    status, _, body = server.ask("POST", "/v2/models/teller/generate_stream", fields)
    assert status == 200, body
    return [json.loads(line[6:]) for line in body.decode().splitlines() if line.startswith("data: ")]


def test_a_stream_of_events_joins_to_the_text(server: RunningServer) -> None:
    whole = generate(server, "writer", text_input="Hello")[1]["text_output"]
    pieces = [event["text_output"] for event in events(server, text_input="Hello", max_new_tokens=NEW_TOKENS)]
    assert "".join(pieces) == whole
    assert len(pieces) > NEW_TOKENS // 2
    status, answer = generate(server, "teller", text_input="Hello", max_new_tokens=NEW_TOKENS, stream=False)
    assert (status, answer["text_output"]) == (200, whole)
    assert "the prompt is empty" in events_error(server, text_input="")
    full = {"text_input": "Hello", "max_new_tokens": NEW_TOKENS, "return_full_text": True}
    assert "".join(event["text_output"] for event in events(server, **full)) == "Hello" + whole
    told_first = events(server, text_input="Hello", stop=[whole], max_new_tokens=NEW_TOKENS, return_full_text=True)
    assert [event["text_output"] for event in told_first] == ["Hello"]


def events_error(server: RunningServer, **fields: Any) -> str:
    status, _, body = server.ask("POST", "/v2/models/teller/generate_stream", fields)
    assert status == 400
    return body.decode()


def test_a_grpc_stream_gets_the_pieces_too(server: RunningServer) -> None:
    grpc = pytest.importorskip("tritonclient.grpc")
    received: list[Any] = []
    done = threading.Event()

    def take(result: Any, error: Any) -> None:
        received.append(error or result)
        if error or result.get_response().parameters["triton_final_response"].bool_param:
            done.set()

    with grpc.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}") as client:
        prompt = grpc.InferInput("text_input", [1, 1], "BYTES")
        prompt.set_data_from_numpy(np.array([["Hello"]], dtype=np.object_))
        client.start_stream(take)
        client.async_stream_infer(
            "teller", [prompt], parameters={"max_new_tokens": NEW_TOKENS}, enable_empty_final_response=True
        )
        assert done.wait(30)
        client.stop_stream()
    pieces = [result.as_numpy("text_output") for result in received]
    text = b"".join(piece[0, 0] for piece in pieces if piece is not None).decode()
    assert text == generate(server, "writer", text_input="Hello")[1]["text_output"]


def test_a_short_text_ends_while_others_of_its_batch_go_on(server: RunningServer) -> None:
    grpc = pytest.importorskip("tritonclient.grpc")
    limits = {"short": 2, "long": 200}
    for _ in range(5):
        before = server.statistics("teller")["execution_count"]
        received: list[tuple[str, bool]] = []
        done = threading.Event()

        def take(result: Any, error: Any, received: list[tuple[str, bool]] = received, done: Any = done) -> None:
            response = result.get_response()
            received.append((response.id, response.parameters["triton_final_response"].bool_param))
            if sum(is_final for _, is_final in received) == len(limits):
                done.set()

        with grpc.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}") as client:
            prompt = grpc.InferInput("text_input", [1, 1], "BYTES")
            prompt.set_data_from_numpy(np.array([["Hello"]], dtype=np.object_))
            client.start_stream(take)
            for name, limit in limits.items():
                parameters = {"max_new_tokens": limit}
                client.async_stream_infer(
                    "teller", [prompt], request_id=name, parameters=parameters, enable_empty_final_response=True
                )
            assert done.wait(30)
            client.stop_stream()
        if server.statistics("teller")["execution_count"] == before + 1:
            break
    else:
        pytest.fail("the two were never batched")
    after = received[received.index(("short", True)) :]
    assert len(after) > limits["long"] // 2


def test_a_client_that_leaves_ends_its_generation(server: RunningServer) -> None:
    began = time.monotonic()
    connection = server.connect()
    body = json.dumps({"text_input": "Hello", "max_new_tokens": 400})
    connection.request("POST", "/v2/models/teller/generate_stream", body)
    response = connection.getresponse()
    assert response.read(6) == b"data: "
    connection.close()
    status, _ = generate(server, "teller", text_input="Hello", max_new_tokens=1, stream=False)
    waited = time.monotonic() - began
    began = time.monotonic()
    generate(server, "teller", text_input="Hello", max_new_tokens=400, stream=False)
    assert status == 200
    assert waited < (time.monotonic() - began) / 2


@pytest.mark.parametrize("name", list(FAILURES))
def test_a_model_that_cannot_be_served_says_why(server: RunningServer, name: str) -> None:
    assert FAILURES[name][1] in server.index()[name]["reason"]
