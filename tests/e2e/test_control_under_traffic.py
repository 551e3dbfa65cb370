"""Models that are reloaded and unloaded while the official clients use them: nothing that was taken is lost."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from running_server import INT_CONFIG, RunningServer, write_model
from tritonclient.utils import InferenceServerException

CODE = """
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.001)
        return [pb_utils.InferenceResponse([pb_utils.Tensor(
            "OUT", pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() * {factor})]) for request in requests]
"""
STEP = """{{ model_name: "{}" model_version: -1
  input_map {{ key: "IN" value: "{}" }} output_map {{ key: "OUT" value: "{}" }} }}"""
FACTORS = {"doublé": 2, "three": 3, "both": 6}


class Clients:
    """Eight of them, over both protocols, which ask all models in turn while the block runs."""

    def __init__(self, server: RunningServer) -> None:
        self.answered: Counter[str] = Counter()
        self.refused: Counter[tuple[str, str]] = Counter()  # the model asked for, and what was said
        self.wrong: list[tuple[str, int, int]] = []
        self._server = server
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number, protocol, module))
            for number in range(4)
            for protocol, module in (("http", httpclient), ("grpc", grpcclient))
        ]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in self._threads)

    def _run(self, number: int, protocol: str, module: ModuleType) -> None:
        client = module.InferenceServerClient(f"127.0.0.1:{self._server.ports[protocol]}")
        chance = random.Random(number)
        while not self._is_over.is_set():
            name, value = chance.choice(list(FACTORS)), chance.randrange(1000)
            tensor = module.InferInput("IN", [1, 1], "INT32")
            tensor.set_data_from_numpy(np.array([[value]], np.int32))
            try:
                answer = int(client.infer(name, [tensor]).as_numpy("OUT")[0, 0])
            except InferenceServerException as error:
                self.refused[name, error.message()] += 1
                continue
            self.answered[name] += 1
            if answer != value * FACTORS[name]:
                self.wrong.append((name, value, answer))
        client.close()


@pytest.fixture(params=["", "hpu:2"])
def served(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    placed = 'parameters { key: "device" value { string_value: "hpu" } }\n' if request.param else ""
    for name in ("doublé", "three"):
        write_model(tmp_path, name, CODE.format(factor=FACTORS[name]), INT_CONFIG + placed)
    steps = f"{STEP.format('doublé', 'IN', 'between')}, {STEP.format('three', 'between', 'OUT')}"
    text = INT_CONFIG.replace('backend: "python"', 'platform: "ensemble"')
    write_model(tmp_path, "both", "", f"{text} ensemble_scheduling {{ step [ {steps} ] }}")
    flags = ["--model-control-mode=explicit", "--load-model=*", f"--devices={request.param or 'cpu'}"]
    with RunningServer(tmp_path, *flags) as server:
        server.wait_until_listening()
        yield server
        assert server.interrupt() == 0


def controls(server: RunningServer) -> list[Any]:
    modules = (("http", httpclient), ("grpc", grpcclient))
    return [module.InferenceServerClient(f"127.0.0.1:{server.ports[protocol]}") for protocol, module in modules]


def test_reloads_lose_no_request(served: RunningServer) -> None:
    chance = random.Random(1)
    with Clients(served) as clients:
        until = time.monotonic() + 2
        while time.monotonic() < until:
            for control in controls(served):
                name = chance.choice(list(FACTORS))
                path = served.log_path.parent / "model_repository" / name / "1/model.py"
                path.write_text(path.read_text() + "#\n")
                control.load_model(name)
    assert (clients.refused, clients.wrong) == (Counter(), [])
    assert clients.answered.keys() == FACTORS.keys()
    served.until(lambda: len(served.children()) == 2)


def test_unloads_finish_what_was_taken(served: RunningServer) -> None:
    chance = random.Random(2)
    with Clients(served) as clients:
        until = time.monotonic() + 2
        while time.monotonic() < until:
            for control in controls(served):
                name = chance.choice(list(FACTORS))
                if chance.random() < 0.5:
                    control.unload_model(name, unload_dependents=chance.random() < 0.5)
                else:
                    control.load_model(name)
        for name in FACTORS:
            controls(served)[0].load_model(name)
    # A model that is not there is refused as such; no request fails inside of an ensemble that had taken it.
    expected = {(name, f"Request for unknown model: '{name}' has no available versions") for name in FACTORS}
    assert clients.refused.keys() <= expected, clients.refused
    assert clients.wrong == []
    served.until(lambda: len(served.children()) == 2)
