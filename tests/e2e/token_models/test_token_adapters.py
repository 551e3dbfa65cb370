"""Adapters of a model of TensorRT-LLM's backend, which requests name by number, as `lora_prefetch_dir` has them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from running_server import RunningServer
from tiny_adapters import cut_off, write_adapters
from tiny_language_models import TinyModel, build

PROMPT, COUNT = [5, 9, 14, 3], 8
CONFIG = """backend: "tensorrtllm" max_batch_size: 8
model_transaction_policy {{ decoupled: {decoupled} }}
instance_group [{{ kind: KIND_CPU }}]
parameters {{ key: "gpt_model_path" value {{ string_value: "{weights}" }} }}
parameters {{ key: "lora_prefetch_dir" value {{ string_value: "{adapters}" }} }}
parameters {{ key: "lora_cache_host_memory_bytes" value {{ string_value: "1000000" }} }}
parameters {{ key: "max_adapters" value {{ string_value: "2" }} }}
parameters {{ key: "dtype" value {{ string_value: "float32" }} }}
parameters {{ key: "exclude_input_in_output" value {{ string_value: "true" }} }}
"""


class Served:
    """A server, and the models that the adapters make of the one that it serves."""

    def __init__(self, server: RunningServer, models: dict[int | None, TinyModel]) -> None:
        self.server, self.models = server, models

    def wanted(self, task: int | None) -> list[int]:
        return self.models[task].continuation(PROMPT, COUNT)

    def ask(self, task: int | None = None, **more: Any) -> tuple[int, dict[str, Any]]:
        chosen = {} if task is None else {"lora_task_id": task}
        body = {"input_ids": PROMPT, "input_lengths": len(PROMPT), "request_output_len": COUNT, "end_id": -1}
        status, _, answer = self.server.ask("POST", "/v2/models/whole/generate", {**body, **chosen, **more})
        return status, json.loads(answer)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One adapter is cut off."""
    folder = tmp_path_factory.mktemp("server")
    tiny = build("llama", folder / "weights")
    adapters = folder / "lora_prefetch"
    adapted = write_adapters(tiny, adapters, ("0", "1", "3"))
    models: dict[int | None, TinyModel] = {None: tiny, **{int(task): model for task, model in adapted.items()}}
    shutil.copytree(adapters / "3", adapters / "4")
    cut_off(adapters / "4")
    for name, decoupled in (("whole", "false"), ("stepwise", "true")):
        (folder / "model_repository" / name / "1").mkdir(parents=True)
        text = CONFIG.format(weights=folder / "weights", adapters=adapters, decoupled=decoupled)
        (folder / "model_repository" / name / "config.pbtxt").write_text(text)
    with RunningServer(folder) as server:
        server.wait_until_listening(timeout_s=110)
        server.until_ready("whole")
        yield Served(server, models)


def test_each_request_is_written_with_the_adapter_of_its_task(served: Served) -> None:
    tasks = [None, 0, 1, 3] * 4
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(served.ask, tasks))
    assert [status for status, _ in found] == [200] * len(tasks), found[0]
    assert [answer["output_ids"] for _, answer in found] == [served.wanted(task) for task in tasks]
    assert len({tuple(served.wanted(task)) for task in tasks}) == 4
    labels = {"model": "whole", "version": "1", "adapter": "3"}
    counted = partial(served.server.metric, "llm:adapter_requests_total", **labels)
    served.server.until(lambda: sum(counted().values()) >= 4)  # told a moment later


def test_a_stream_is_written_with_the_adapter_of_its_task(served: Served) -> None:
    tensors = []
    values: dict[str, tuple[Any, str]] = {
        "input_ids": (np.array([PROMPT], np.int32), "INT32"),
        "input_lengths": (np.array([[len(PROMPT)]], np.int32), "INT32"),
        "request_output_len": (np.array([[COUNT]], np.int32), "INT32"),
        "end_id": (np.array([[-1]], np.int32), "INT32"),
        "streaming": (np.array([[True]]), "BOOL"),
        "lora_task_id": (np.array([[1]], np.uint64), "UINT64"),
    }
    for name, (array, kind) in values.items():
        tensors.append(grpcclient.InferInput(name, array.shape, kind))
        tensors[-1].set_data_from_numpy(array)
    found: list[Any] = []
    with grpcclient.InferenceServerClient(f"127.0.0.1:{served.server.ports['grpc']}") as client:
        client.start_stream(lambda result, error: found.append(error or result))
        client.async_stream_infer("stepwise", tensors, request_id="12")
        served.server.until(lambda: len(found) >= COUNT)
    assert [result.as_numpy("output_ids").reshape(-1).tolist() for result in found] == [
        [token] for token in served.wanted(1)
    ]


@pytest.mark.parametrize(
    ("task", "more", "code", "words"),
    [
        (7, {}, 404, "'lora_task_id' is 7: there is no adapter '7'"),
        (4, {}, 500, "adapter_model.safetensors"),
        (1, {"request_output_len": 10**6}, 400, "'request_output_len' is 1000000"),
    ],
)
def test_what_cannot_be_followed_is_told_and_the_others_go_on(
    served: Served, task: int, more: dict[str, Any], code: int, words: str
) -> None:
    status, answer = served.ask(task, **more)
    assert (status, words in answer["error"]) == (code, True), answer
    assert served.ask(3)[1]["output_ids"] == served.wanted(3)
