"""The journey of the Hugging Face folders, step by step as its users type it, with the model files as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from huggingface_journey import Journey, generate, infer, infer_body, told_of
from running_server import RunningServer

from trireme.devices.inventory import discover
from trireme.machine.cpu_arithmetic import emulates

pytestmark = pytest.mark.timeout(300)  # loading included

LONG_PROMPT = "Once upon a time there was a server. " * 4
"""More than the 15 tokens that the folders allow an answer to have."""


@pytest.fixture(scope="module")
def journey(tmp_path_factory: pytest.TempPathFactory) -> Journey:
    return Journey(tmp_path_factory.mktemp("journey"))


@pytest.fixture(scope="module")
def three_models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """All three folders, the first with dynamic batching appended to its configuration; no token is set."""
    journey = Journey(tmp_path_factory.mktemp("three"))
    for model in ("falcon7b", "persimmon8b", "llama7b"):
        journey.add(model)
    with (journey.repository / "falcon7b" / "config.pbtxt").open("a") as config:
        config.write("dynamic_batching { }\nmax_batch_size: 8\n")
    with journey.served() as server:
        yield server


def test_the_first_folder_is_served_asked_and_ended(journey: Journey) -> None:
    journey.add("falcon7b")
    with journey.served() as server:
        status, headers, body = server.ask("GET", "/v2/health/ready")
        assert (status, headers["Content-Length"], headers["Content-Type"], body) == (200, "0", "text/plain", b"")
        output = infer(server, "falcon7b", "I am going")
        assert {key: output[key] for key in ("name", "datatype", "shape")} == {
            "name": "text_output",
            "datatype": "BYTES",
            "shape": [1],
        }
        assert is_continued(output["data"][0], "I am going")
        answer = generate(server, "falcon7b", "How can you be")
        assert (answer["model_name"], answer["model_version"]) == ("falcon7b", "1")
        assert is_continued(answer["text_output"], "How can you be")
        assert has_one_token_more(infer(server, "falcon7b", LONG_PROMPT)["data"][0], LONG_PROMPT)
        workers = server.children()
        assert len(workers) == 1
        assert server.interrupt() == 0
        assert not any(Path(f"/proc/{worker}").exists() for worker in workers)
        assert "Cleaning up..." in server.log
        assert "Max sequence length: 15" in server.log


def test_the_table_and_the_started_lines_are_in_the_log(three_models: RunningServer) -> None:
    table = """+-------------+---------+--------+
| Model       | Version | Status |
+-------------+---------+--------+
| falcon7b    | 1       | READY  |
| llama7b     | 1       | READY  |
| persimmon8b | 1       | READY  |
+-------------+---------+--------+"""
    assert table in three_models.log
    pattern = r"^I\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ \S+:\d+\] Started (\S+)"
    started = re.findall(pattern, three_models.log, re.MULTILINE)
    assert started == ["GRPCInferenceService", "HTTPService", "Metrics"]


@pytest.mark.parametrize("model", ["persimmon8b", "llama7b"])
def test_further_folders_answer_infer_and_generate(three_models: RunningServer, model: str) -> None:
    output = infer(three_models, model, "Where is the nearest")
    assert (output["name"], output["datatype"], output["shape"]) == ("text_output", "BYTES", [1])
    assert is_continued(output["data"][0], "Where is the nearest")
    assert has_one_token_more(generate(three_models, model, LONG_PROMPT)["text_output"], LONG_PROMPT)


def test_a_folder_that_demands_a_token_is_served_without_one(three_models: RunningServer) -> None:
    assert three_models.index()["llama7b"]["state"] == "READY"
    (warning,) = [line for line in told_of(three_models, "llama7b") if "PRIVATE_REPO_TOKEN" in line]
    assert "which is not set: it was set to an empty text, and the model was started again" in warning


def test_every_rescue_is_told_once_per_worker_and_nothing_else_is_done(three_models: RunningServer) -> None:
    for _ in range(2):
        infer(three_models, "persimmon8b", LONG_PROMPT)
    warnings = told_of(three_models, "persimmon8b")
    assert len([line for line in warnings if "is not shorter than max_length=15" in line]) == 1
    assert all(line.endswith("(compat 'off' turns such rescues off)") for line in warnings)
    kinds = [line.partition("] ")[2] for line in warnings]
    assert len(kinds) == len(set(kinds))


def test_a_faster_type_than_float16_is_offered(three_models: RunningServer) -> None:
    for model in ("falcon7b", "persimmon8b", "llama7b"):
        told = [line for line in told_of(three_models, model, "I") if "was loaded in float16" in line]
        assert len(told) == (1 if is_slow_with_float16() else 0)
        assert all(line.endswith("computes it in a faster type") and "--compat=float16, or" in line for line in told)


def test_what_was_asked_for_in_a_configuration_or_by_flag_is_done(tmp_path: Path) -> None:
    journey = Journey(tmp_path)
    journey.add("falcon7b")
    with (journey.add("persimmon8b") / "config.pbtxt").open("a") as config:
        config.write('parameters { key: "compat" value { string_value: "float16-as-float32, cache" } }\n')
    with journey.served("--compat=float16-as-bfloat16") as server:
        for model, dtype in (("falcon7b", "bfloat16"), ("persimmon8b", "float32")):
            assert is_continued(generate(server, model, "I am going")["text_output"], "I am going")
            told = [line for line in told_of(server, model) if "was loaded in float16" in line]
            assert len(told) == (1 if torch_has_only_the_cpu() else 0)
            assert all(f"it is a model of {dtype} now" in line for line in told)
        assert not [line for line in told_of(server, "falcon7b") if "TRANSFORMERS_CACHE" in line]
        (cache,) = [line for line in told_of(server, "persimmon8b") if "TRANSFORMERS_CACHE" in line]
        assert f"HF_HUB_CACHE was set to '{tmp_path}/model_repository/persimmon8b/hf_cache'" in cache
        assert cache.endswith("(asked for by compat 'cache')")


def test_sixteen_clients_get_their_own_texts_from_batches(three_models: RunningServer) -> None:
    before = three_models.statistics("falcon7b")
    texts = answers_at_once(three_models, "falcon7b", 16)
    for prompt, answer in texts.items():
        # This folder's file answers request i of a batch with the texts 0 to i.
        own = answer if isinstance(answer, str) else answer[-1]
        assert is_continued(own, prompt)
    after = three_models.statistics("falcon7b")
    requests, executions = (int(after[key]) - int(before[key]) for key in ("inference_count", "execution_count"))
    assert requests == 16
    assert executions < requests


def test_clients_at_once_get_their_own_texts_without_batches_too(three_models: RunningServer) -> None:
    for prompt, answer in answers_at_once(three_models, "persimmon8b", 6).items():
        assert is_continued(answer, prompt)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v2/models/persimmon8b/infer", infer_body("x", datatype="FP32", data=[1.0]), 400),
        ("/v2/models/persimmon8b/infer", infer_body("x", shape=[2], data=["x", "y"]), 400),
        ("/v2/models/persimmon8b/infer", infer_body("x", name="prompt"), 400),
        ("/v2/models/persimmon8b/infer", {**infer_body("x"), "outputs": [{"name": "text"}]}, 400),
        ("/v2/models/nosuch/infer", infer_body("x"), 404),
        ("/v2/models/persimmon8b/infer", b"this is not JSON", 500),
        # With a batch dimension the request of the first step has one dimension too few.
        ("/v2/models/falcon7b/infer", infer_body("I am going"), 400),
    ],
)
def test_wrong_requests_get_an_error_in_json(three_models: RunningServer, path: str, body: object, status: int) -> None:
    got, _, answer = three_models.ask("POST", path, body)
    assert got == status
    assert set(json.loads(answer)) == {"error"}
    assert three_models.status("/v2/health/ready") == 200


def is_slow_with_float16() -> bool:
    return emulates("float16") and torch_has_only_the_cpu()


def torch_has_only_the_cpu() -> bool:
    return not any(device.kind == "cuda" for device in discover(None).devices)


def answers_at_once(server: RunningServer, model: str, count: int) -> dict[str, Any]:
    prompts = [f"Client {number} is" for number in range(count)]
    with ThreadPoolExecutor(count) as clients:
        answers = clients.map(lambda prompt: generate(server, model, prompt)["text_output"], prompts)
        return dict(zip(prompts, answers, strict=True))


def has_one_token_more(text: str, prompt: str) -> bool:
    """Whether the text is the prompt and a little more: a single token, drawn at random, may be a blank."""
    return text.startswith(prompt) and 0 < len(text) - len(prompt) < 12


def is_continued(text: str, prompt: str) -> bool:
    """Whether the text is the prompt and something visible after it."""
    return text.startswith(prompt) and bool(text.removeprefix(prompt).strip())
