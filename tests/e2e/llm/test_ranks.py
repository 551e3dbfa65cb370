"""Models that are divided among two processes on the processor, as clients see them: texts, errors, a killed rank."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from running_server import RunningServer
from tiny_language_models import TinyModel, build
from tiny_tokenizers import byte_level, write_folder

PROMPT = [5, 9, 17, 40, 3, 88, 61]
LLM = 'backend: "llm"\nparameters { key: "dtype" value: { string_value: "float32" } }\n'
TENSORRT_LLM = LLM.replace('"llm"', '"tensorrtllm"')
CONFIGS = {
    "divided": LLM + 'parameters { key: "tensor_parallel" value: { string_value: "2" } }\n',
    "old": TENSORRT_LLM + 'parameters { key: "tensor_para_size" value: { string_value: "2" } }\n',
    "three": LLM + 'parameters { key: "tensor_parallel" value: { string_value: "3" } }\n',
    "none": LLM + 'parameters { key: "tensor_parallel" value: { string_value: "0" } }\n',
}

Served = tuple[RunningServer, TinyModel]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("ranks")
    for name, config in CONFIGS.items():
        version = folder / "model_repository" / name / "1"
        model = build("llama", version)
        write_folder(version, byte_level())
        (version.parent / "config.pbtxt").write_text(config)
    with RunningServer(folder, "--devices=cpu", "--exit-on-error=false") as server:
        server.wait_until_listening(timeout_s=110)
        yield server, model


def ranks_of(server: RunningServer) -> list[int]:
    """The processes that ranks run in, below the server."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and comm(entry) == "trireme-rank" and server.process.pid in ancestors(int(entry.name)):
            found.append(int(entry.name))
    return found


def comm(entry: Path) -> str:
    """The name of a process that has not ended."""
    try:
        head, _, rest = (entry / "stat").read_text().rpartition(")")
    except OSError:
        return ""
    return "" if rest.split()[0] == "Z" else head.partition("(")[2]


def ancestors(pid: int) -> list[int]:
    found = []
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
        found.append(pid)
    return found


def text_of(server: RunningServer) -> str:
    body = {"input_ids": PROMPT, "max_tokens": 8, "ignore_eos": True}
    status, _, text = server.ask("POST", "/v2/models/divided/generate", body)
    assert status == 200, text
    return str(json.loads(text)["text_output"])


def test_two_ranks_write_what_one_would(served: Served) -> None:
    server, model = served
    assert text_of(server) == byte_level().decode(model.continuation(PROMPT, 8))
    assert "LlamaForCausalLM runs on 2 ranks (cpu, cpu) with PyTorch, in float32" in server.log


def test_the_old_backends_follow_their_own_parameter(served: Served) -> None:
    server, model = served
    tensors = {"input_ids": PROMPT, "input_lengths": [len(PROMPT)], "request_output_len": [8]}
    inputs = [{"name": name, "datatype": "INT32", "shape": [len(data)], "data": data} for name, data in tensors.items()]
    status, _, body = server.ask("POST", "/v2/models/old/infer", {"inputs": inputs})
    assert status == 200, body
    outputs = {output["name"]: output["data"] for output in json.loads(body)["outputs"]}
    assert outputs["output_ids"] == PROMPT + model.continuation(PROMPT, 8)
    assert server.log.count("runs on 2 ranks") >= 2


def test_numbers_that_cannot_be_are_told_at_load(served: Served) -> None:
    index = served[0].index()
    assert "cannot be divided among 3 ranks (tensor_parallel): it has 4 attention heads" in index["three"]["reason"]
    assert "parameter 'tensor_parallel' of model 'none' must be a whole number of at least 1" in index["none"]["reason"]


def test_a_rank_killed_in_a_stream_is_named_and_the_model_comes_back(served: Served) -> None:
    server, _ = served
    wanted = text_of(server)
    victims = ranks_of(server)
    assert len(victims) == 2, "one of each model"
    fields: dict[str, Any] = {"input_ids": PROMPT, "stream": True, "max_tokens": 56, "min_tokens": 56}
    connection = server.connect()
    connection.request("POST", "/v2/models/divided/generate_stream", json.dumps(fields))
    response = connection.getresponse()
    assert response.readline().startswith(b"data: ")
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    rest = response.read().decode()
    error = json.loads(rest.rstrip().rpartition("data: ")[2])["error"]
    assert "the engine has failed: RankError: rank 1 of 2 (process " in error
    assert "was ended by SIGKILL" in error
    assert any(f"process {pid})" in error for pid in victims)
    assert time.monotonic() - began < 5
    for name in ("divided", "old"):
        server.until(lambda name=name: server.status(f"/v2/models/{name}/ready") == 200, timeout_s=120)
    server.until(lambda: len(set(ranks_of(server)) - set(victims)) == 2, timeout_s=120)
    assert text_of(server) == wanted


def test_ranks_end_with_the_server_s_worker(served: Served) -> None:
    server, _ = served
    victims = ranks_of(server)
    parents = {ancestors(pid)[0] for pid in victims}
    assert len(parents) == 2
    for pid in parents:
        os.kill(pid, signal.SIGKILL)
    server.until(lambda: not set(ranks_of(server)) & set(victims), timeout_s=5)
    server.until(lambda: server.status("/v2/models/divided/ready") == 200, timeout_s=120)
    text_of(server)


def test_no_rank_outlives_the_server(served: Served) -> None:
    server, _ = served
    victims = ranks_of(server)
    assert victims
    server.interrupt()
    until(lambda: not any(comm(Path(f"/proc/{pid}")) == "trireme-rank" for pid in victims))


def until(is_so: Callable[[], bool], timeout_s: float = 10) -> None:
    end = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)
