"""Measures the language-model engine on the CPU: concurrent requests against transformers, which takes one at a time.

    python benchmarks/llm_cpu.py --requests 16
    python benchmarks/llm_cpu.py --requests 16 --server

The model has random weights. Both sides continue the same prompts greedily, and have to come to the same tokens. With
`--server` as many clients ask a served model over HTTP, each for one answer: one of `backend: "llm"`, then a model.py that
calls `generate()` for one request at a time, each on a server of its own. Beside the time stands the processor time of
the server and its workers: on a machine that does other work too, compare that, with OMP_NUM_THREADS=1, since threads
that wait for each other there burn processor time.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers

from trireme.llm.engine import EngineCore
from trireme.llm.executor_choice import load_executor
from trireme.llm.options import EngineOptions
from trireme.llm.request import SequenceOutput
from trireme.llm.sampling_params import SamplingParams

TICKS = os.sysconf("SC_CLK_TCK")
ENGINE_CONFIG = """backend: "llm"
parameters {{ key: "model" value {{ string_value: "{folder}" }} }}
parameters {{ key: "dtype" value {{ string_value: "float32" }} }}
parameters {{ key: "prefix_cache" value {{ string_value: "false" }} }}
"""
PLAIN_CONFIG = """backend: "python"
parameters {{ key: "folder" value {{ string_value: "{folder}" }} }}
input [ {{ name: "input_ids" data_type: TYPE_INT64 dims: [ -1 ] }}, {{ name: "max_tokens" data_type: TYPE_INT32 dims: [ 1 ] }} ]
output {{ name: "text_output" data_type: TYPE_STRING dims: [ 1 ] }}
"""
PLAIN_MODEL = """import json
import numpy as np
import torch
import transformers
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        folder = json.loads(args["model_config"])["parameters"]["folder"]["string_value"]
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        ids = torch.from_numpy(pb_utils.get_input_tensor_by_name(request, "input_ids").as_numpy()).view(1, -1)
        count = int(pb_utils.get_input_tensor_by_name(request, "max_tokens").as_numpy()[0])
        with torch.inference_mode():
            tokens = self.model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False, eos_token_id=None,
                pad_token_id=0,
            )
        text = " ".join(f"w{token}" for token in tokens[0, ids.shape[1]:].tolist())
        return pb_utils.InferenceResponse([pb_utils.Tensor("text_output", np.array([text], dtype=object))])
"""


def make_model(folder: Path) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=32000,
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        initializer_range=0.05,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    model.generation_config = transformers.GenerationConfig()
    model.save_pretrained(folder)
    return model


def run_transformers(model: Any, prompts: list[list[int]], new: int) -> tuple[float, list[list[int]]]:
    found = []
    began = time.perf_counter()
    with torch.inference_mode():
        for prompt in prompts:
            ids = torch.tensor([prompt])
            mask = torch.ones_like(ids)
            tokens = model.generate(
                ids, attention_mask=mask, max_new_tokens=new, do_sample=False, eos_token_id=None, pad_token_id=0
            )
            found.append(tokens[0, len(prompt) :].tolist())
    return time.perf_counter() - began, found


def run_engine(engine: EngineCore, prompts: list[list[int]], new: int) -> tuple[float, list[list[int]]]:
    found: list[list[int]] = [[] for _ in prompts]
    done = threading.Semaphore(0)

    def listener(index: int) -> Any:
        def listen(output: SequenceOutput) -> None:
            found[index] += output.token_ids
            if output.finish_reason is not None:
                assert not output.error, output.error
                done.release()

        return listen

    began = time.perf_counter()
    for index, prompt in enumerate(prompts):
        engine.submit(prompt, SamplingParams(max_tokens=new), listener(index))
    for _ in prompts:
        done.acquire()
    return time.perf_counter() - began, found


def write_repositories(root: Path, folder: Path) -> dict[str, Path]:
    """One for each side, with the model `m`; and a tokenizer that has a word for every id beside the weights."""
    words = {f"w{index}": index for index in range(32000)}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "w0"})
    )
    found = {}
    for side, config in (("llm", ENGINE_CONFIG), ("model.py", PLAIN_CONFIG)):
        found[side] = root / side
        (found[side] / "m" / "1").mkdir(parents=True)
        (found[side] / "m" / "config.pbtxt").write_text(config.format(folder=folder))
    (found["model.py"] / "m" / "1" / "model.py").write_text(PLAIN_MODEL)
    return found


@contextmanager
def running_server(repository: Path) -> Iterator[tuple[int, int]]:
    """Its process id and its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "trireme", "serve", "--model-repository", str(repository)]
    command += ["--http-address=127.0.0.1", f"--http-port={port}", "--allow-grpc=false", "--allow-metrics=false"]
    with (repository / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        while not is_ready(port):
            if process.poll() is not None:
                raise SystemExit((repository / "log").read_text()[-3000:])
            time.sleep(0.5)
        yield process.pid, port
    finally:
        process.terminate()
        process.wait(60)


def is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/v2/health/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def ask(port: int, prompt: list[int], new: int, is_engine: bool) -> list[int]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    body = {"input_ids": prompt, "max_tokens": new} | ({"ignore_eos": True} if is_engine else {})
    connection.request("POST", "/v2/models/m/generate", json.dumps(body))
    response = connection.getresponse()
    text = response.read()
    connection.close()
    if response.status != 200:
        raise RuntimeError(text.decode())
    return [int(word[1:]) for word in json.loads(text)["text_output"].split()]


def processor_s(pid: int) -> float:
    """Of a process and all below it."""
    found = 0.0
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += sum(processor_s(int(child)) for child in (task / "children").read_text().split())
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return found + (int(fields[11]) + int(fields[12])) / TICKS


def measure_served(options: argparse.Namespace, prompts: list[list[int]], folder: Path, root: Path) -> None:
    total = options.requests * options.new
    best: dict[str, tuple[float, float]] = {}
    texts: dict[str, list[list[int]]] = {}
    for side, repository in write_repositories(root, folder).items():
        with running_server(repository) as (pid, port), ThreadPoolExecutor(options.requests) as clients:
            ask(port, prompts[0], 4, side == "llm")
            for _ in range(options.rounds):
                before, began = processor_s(pid), time.perf_counter()
                asked = [clients.submit(ask, port, prompt, options.new, side == "llm") for prompt in prompts]
                texts[side] = [one.result() for one in asked]
                took, used = time.perf_counter() - began, processor_s(pid) - before
                best[side] = min(best.get(side, (took, used)), (took, used))
                print(f"{side:>8} {total / took:8.1f} tokens/s, processor time {used:6.2f} s", flush=True)
    equal = sum(one == other for one, other in zip(*texts.values(), strict=True))
    (ours, our_s), (theirs, their_s) = best["llm"], best["model.py"]
    print(f"{equal} of {len(prompts)} texts equal")
    print(f"ratio {theirs / ours:.2f}, of processor time {their_s / our_s:.2f}, with {options.requests} clients")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", choices=["cpu", "numpy"], default="cpu")
    parser.add_argument("--server", action="store_true", help="through a server, by as many clients as requests")
    options = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    shape = (options.requests, options.prompt)
    prompts = torch.randint(3, 32000, shape, generator=generator).tolist()
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder))
        if options.server:
            with tempfile.TemporaryDirectory() as root:
                measure_served(options, prompts, Path(folder), Path(root))
            return
        settings = EngineOptions(has_prefix_cache=False)
        engine = EngineCore(load_executor(folder, settings, options.device, "float32"), settings)
        run_transformers(model, prompts[:1], 4)
        run_engine(engine, prompts, 4)
        total = options.requests * options.new
        ours, theirs = [], []
        for _ in range(options.rounds):
            took, tokens = run_engine(engine, prompts, options.new)
            ours.append(took)
            their_time, their_tokens = run_transformers(model, prompts, options.new)
            theirs.append(their_time)
            equal = sum(one == other for one, other in zip(tokens, their_tokens, strict=True))
            print(f"engine {total / took:8.1f} tokens/s   transformers {total / their_time:8.1f} tokens/s   "
                  f"{equal} of {len(prompts)} texts equal", flush=True)  # fmt: skip
        engine.close()
    print(f"ratio {min(theirs) / min(ours):.2f} with {options.requests} requests, {torch.get_num_threads()} threads")


if __name__ == "__main__":
    main()
