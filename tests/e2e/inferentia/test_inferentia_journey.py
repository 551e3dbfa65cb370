"""A classifier spread over NeuronCores, from its file to the benchmark, as a user types it; the CPU stands in."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from neuron_journey import MODEL, ask_client, generate, infer, make_classifier, random_images, unsplit
from running_server import RunningServer

NUMBER = r"\d+(?:\.\d+)?(?:e-?\d+)?"
PACKAGES = {"pytorch": "torch", "onnx": "onnxruntime", "tensorflow": "tensorflow"}


@pytest.fixture(scope="module", params=PACKAGES)
def model_type(request: pytest.FixtureRequest) -> str:
    if importlib.util.find_spec(PACKAGES[request.param]) is None:
        pytest.skip(f"{PACKAGES[request.param]} is not installed")
    return str(request.param)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, model_type: str) -> Path:
    folder = tmp_path_factory.mktemp("inferentia")
    make_classifier(folder, model_type)
    generate(folder, model_type, command=(sys.executable, "-m", "trireme.tools.neuron_model"))
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    with RunningServer(folder, "--devices=cpu") as running:
        running.wait_until_listening()
        yield running


def test_without_neuron_cores_the_cpu_has_to_be_asked_for(folder: Path) -> None:
    with RunningServer(folder) as running:
        assert running.process.wait(60) == 1
    assert f"model '{MODEL}' asks for NeuronCores 0 to 15" in running.log
    assert "this server has none (its devices: cpu). Start it with --devices=cpu to serve the model" in running.log


def test_model_is_in_the_table(server: RunningServer) -> None:
    assert re.search(rf"\| {MODEL} +\| 1 +\| READY +\|", server.log)
    assert f"model '{MODEL}' does not run on NeuronCores here" in server.log


def test_first_request_passes(server: RunningServer, folder: Path) -> None:
    done = ask_client(folder, server.ports["http"], "--batch_size", "16", "--limit", "30", "--num_threads", "1")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == [f"Model name = {MODEL}, batch size = 16", "====="]
    assert lines[2].startswith("[[")
    assert lines[-3:-1] == ["=====", f"PASS: {MODEL}"]
    assert re.fullmatch(rf"##### Model inference time in ms:  {NUMBER}", lines[-1])


def test_benchmark_prints_every_line(server: RunningServer, folder: Path) -> None:
    flags = ("--batch_size", "16", "--benchmark", "--limit", "1", "--num_threads", "2")
    done = ask_client(folder, server.ports["http"], *flags)
    assert done.returncode == 0, done.stderr
    text = done.stdout
    begin = text.index("##### WARMUP COMPLETE, NOW DO BENCHMARK #####\n")
    lines = text[begin:].splitlines()
    assert lines[1] == f"##### Model name: {MODEL}, Batch size: 16"
    assert ">>> Running 2 threads" in lines
    for thread in range(2):
        assert f"RUN Thread {thread} for 0:00:01 seconds" in lines
        own = [line for line in lines if re.match(rf"Thread {thread}\b", line)]
        (count,) = re.findall(rf"^Thread {thread}: Completed (\d+) http requests in {NUMBER} seconds\.$", own[0])
        assert int(count) > 0
        assert re.fullmatch(rf"Thread {thread} Throughput per second:  {NUMBER}", own[1])
        assert [line.split(" in ms:  ")[0] for line in own[2:]] == [
            f"Thread {thread} Latency p{percent}" for percent in (50, 75, 95, 99)
        ]
    assert server.statistics(MODEL)["inference_stats"]["fail"]["count"] == 0


@pytest.mark.parametrize("rows", [16, 20, 3, 1])
def test_spread_batch_equals_the_whole_one(server: RunningServer, folder: Path, model_type: str, rows: int) -> None:
    images = random_images(rows)
    answered = infer(server.ports["http"], images)
    assert answered.shape == (rows, 1000)
    np.testing.assert_allclose(answered, unsplit(folder / "rn50", model_type, images), rtol=1e-5, atol=1e-5)


def test_grpc_gives_the_same_answer(server: RunningServer) -> None:
    images = random_images(4)
    tensor = grpcclient.InferInput("input", list(images.shape), "FP32")
    tensor.set_data_from_numpy(images)
    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}") as client:
        answered = client.infer(MODEL, [tensor]).as_numpy("output")
    np.testing.assert_array_equal(answered, infer(server.ports["http"], images))


def test_client_says_what_failed(server: RunningServer, folder: Path) -> None:
    done = ask_client(folder, server.ports["http"], "--batch_size", "1", "--num_threads", "1", name="nobody")
    assert done.returncode == 1
    assert "FAIL: nobody: " in done.stderr
    assert "nobody" in done.stderr.partition("FAIL: nobody: ")[2]
    assert "PASS" not in done.stdout
