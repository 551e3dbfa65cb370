"""Batched generation and classification through our backends, against one request at a time.

    python benchmarks/transformers_backend.py [--seconds 6] [--clients 16] [--vocabulary 50432]

The same random weights are served by one server in two or three ways: by `backend: "transformers"`, by `backend: "llm"`
where they generate, and by a model.py of the python backend that calls the library for each request in turn. Sizes are chosen so that a batch has something to gain on a
CPU: a Llama with 4 layers of 512, a BERT with 4 layers of 256, short texts, few words unless `--vocabulary` says how
many. The last lines compare one client with calling the library in this process.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

NEW_TOKENS = 16
WORDS = ("ship", "sea", "harbour", "captain", "sail", "wind", "storm", "good", "bad", "fast", "slow", "big", "small")
NAIVE = """import json
import numpy as np
import triton_python_backend_utils as pb_utils
from transformers import pipeline

class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        folder = parameters["model"]["string_value"]
        self.task = parameters["task"]["string_value"]
        self.pipeline = pipeline(self.task, model=folder)

    def execute(self, requests):
        responses = []
        for request in requests:
            name = request.inputs()[0].name()
            text = request.inputs()[0].as_numpy().ravel()[0].decode()
            if self.task == "text-generation":
                answer = self.pipeline(text, max_new_tokens=NEW_TOKENS, do_sample=False, return_full_text=False)
                outputs = {"text_output": np.array([answer[0]["generated_text"]], dtype=object)}
            else:
                answer = self.pipeline(text)[0]
                outputs = {
                    "label": np.array([answer["label"]], dtype=object),
                    "score": np.array([answer["score"]], dtype=np.float32),
                }
            tensors = [pb_utils.Tensor(key, value) for key, value in outputs.items()]
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses
""".replace("NEW_TOKENS", str(NEW_TOKENS))
TENSORS = {
    "text-generation": 'input { name: "text_input" data_type: TYPE_STRING dims: 1 } '
    'output { name: "text_output" data_type: TYPE_STRING dims: 1 }',
    "text-classification": 'input { name: "text" data_type: TYPE_STRING dims: 1 } '
    'output { name: "label" data_type: TYPE_STRING dims: 1 } output { name: "score" data_type: TYPE_FP32 dims: 1 }',
}
INPUTS = {"text-generation": "text_input", "text-classification": "text"}


def build_models(folder: Path, vocabulary: int) -> dict[str, Path]:
    """A causal language model and a classifier, random but seeded."""
    import tiny_task_models
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    writer, judge = folder / "writer", folder / "judge"
    sizes = {"num_hidden_layers": 4, "num_attention_heads": 8, "max_position_embeddings": 256}
    for files in (writer, judge):
        files.mkdir()
        count = max(vocabulary, len(tiny_task_models.word_tokenizer(files)))
    llama = transformers.LlamaConfig(
        vocab_size=count, hidden_size=512, intermediate_size=1024, bos_token_id=None, eos_token_id=None, **sizes
    )
    transformers.LlamaForCausalLM(llama).save_pretrained(writer)
    bert = transformers.BertConfig(vocab_size=count, hidden_size=256, intermediate_size=1024, **sizes)
    transformers.BertForSequenceClassification(bert).save_pretrained(judge)
    return {"text-generation": writer, "text-classification": judge}


def write_repository(repository: Path, models: dict[str, Path]) -> None:
    """Each model by our backends and by a model.py."""
    for task, files in models.items():
        given = {"model": str(files), "task": task}
        if task == "text-generation":
            given["max_new_tokens"] = str(NEW_TOKENS)
        lines = [f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}' for key, value in given.items()]
        heads = {"naive": f'backend: "python" {TENSORS[task]}', "batched": 'backend: "transformers"'}
        if task == "text-generation":
            heads["engine"] = 'backend: "llm"'
        for name, head in heads.items():
            folder = repository / f"{task}.{name}"
            (folder / "1").mkdir(parents=True)
            known = [line for line in lines if name != "engine" or '"task"' not in line]
            (folder / "config.pbtxt").write_text("\n".join([head, *known]))
            if name == "naive":
                (folder / "1" / "model.py").write_text(NAIVE)


@contextmanager
def running_server(repository: Path) -> Iterator[int]:
    """The server's HTTP port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = int(listener.getsockname()[1])
    command = [str(Path(sys.executable).with_name("tritonserver")), f"--model-repository={repository}"]
    command += [f"--http-port={port}", "--allow-grpc=false", "--allow-metrics=false"]
    log = (repository.parent / "server.log").open("w")
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 120
        while not is_ready(port):
            assert process.poll() is None, (repository.parent / "server.log").read_text()
            assert time.monotonic() < deadline, (repository.parent / "server.log").read_text()
            time.sleep(0.2)
        yield port
    finally:
        process.terminate()
        process.wait()


def is_ready(port: int) -> bool:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/v2/health/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False


def text_of(number: int) -> str:
    return " ".join(WORDS[(number * 7 + place * 3) % len(WORDS)] for place in range(6 + number % 6))


def ask(connection: http.client.HTTPConnection, model: str, field: str, number: int) -> None:
    body = json.dumps({field: text_of(number)})
    connection.request("POST", f"/v2/models/{model}/generate", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    content = response.read()
    assert response.status == 200, content


def throughput(port: int, model: str, field: str, clients: int, seconds: float) -> float:
    """Answers per second, counted after a warm-up of a quarter of the time."""
    counts = [0] * clients
    begin = time.monotonic() + seconds / 4
    end = begin + seconds

    def run(client: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        number = client
        while time.monotonic() < end:
            ask(connection, model, field, number)
            number += clients
            if begin < time.monotonic() < end:
                counts[client] += 1

    threads = [threading.Thread(target=run, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


def median_ms(call: Callable[[int], object], count: int) -> float:
    for number in range(5):
        call(number)
    times = []
    for number in range(count):
        began = time.perf_counter()
        call(number)
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


def direct_call(task: str, files: Path) -> Callable[[int], Any]:
    """The library's pipeline in this process, with as many threads as a worker has."""
    import torch
    import transformers

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    pipeline = transformers.pipeline(task, model=str(files))
    settings = {"max_new_tokens": NEW_TOKENS, "do_sample": False} if task == "text-generation" else {}
    return lambda number: pipeline(text_of(number), **settings)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=6)
    arguments.add_argument("--clients", type=int, default=16)
    arguments.add_argument("--vocabulary", type=int, default=0)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = build_models(folder, given.vocabulary)
        write_repository(folder / "model_repository", models)
        with running_server(folder / "model_repository") as port:
            print(f"{given.clients} clients, answers per second")
            for task in models:
                kinds = ("naive", "batched", "engine") if task == "text-generation" else ("naive", "batched")
                rates = [
                    throughput(port, f"{task}.{kind}", INPUTS[task], given.clients, given.seconds) for kind in kinds
                ]
                print(f"  {task:22} one at a time {rates[0]:7.1f}", end="")
                for kind, rate in zip(kinds[1:], rates[1:], strict=True):
                    print(f"   {kind} {rate:7.1f}   {rate / rates[0]:.2f}x", end="")
                print(flush=True)
            print("one client, median milliseconds")
            for task, files in models.items():
                direct = direct_call(task, files)
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

                def served(number: int, task: str = task, connection: http.client.HTTPConnection = connection) -> None:
                    ask(connection, f"{task}.batched", INPUTS[task], number)

                count = 20 if task == "text-generation" else 100
                own, ours = median_ms(direct, count), median_ms(served, count)
                print(f"  {task:22} library {own:7.2f}   served {ours:7.2f}   overhead {ours - own:+.2f}")


if __name__ == "__main__":
    main()
