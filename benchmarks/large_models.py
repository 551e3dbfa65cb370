"""Generation with models of seven billion parameters on a GPU: requests in batches, against one at a time.

    python benchmarks/large_models.py [--shapes falcon-7b,llama-2-7b] [--clients 1,16,64] [--seconds 20] [--server COMMAND]

The models have the real shapes and random weights in bfloat16, are written to a folder (14 GB each) and served from it
twice by one server: by `backend: "transformers"` as it is, and with `max_batch_size: 1`. Every token of their
vocabulary is a word, so the tokens of an answer can be counted in its text.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "falcon-7b": (
        "Falcon",
        {
            "vocab_size": 65024,
            "hidden_size": 4544,
            "num_hidden_layers": 32,
            "num_attention_heads": 71,
            "multi_query": True,
            "parallel_attn": True,
            "new_decoder_architecture": False,
            "alibi": False,
            "bias": False,
        },
    ),
    "llama-2-7b": (
        "Llama",
        {
            "vocab_size": 32000,
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "max_position_embeddings": 4096,
        },
    ),
    "trial": (
        "Llama",
        {
            "vocab_size": 30000,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
        },
    ),
}
"""Family and sizes; the last is for trying this script without a GPU."""
BATCH_SIZES = {"batched": 64, "single": 1}
TIMEOUT_S = 300


def build_model(shape: str, folder: Path) -> None:
    """Random weights, made on the GPU where there is one, and a tokenizer of numbered words."""
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    family, sizes = SHAPES[shape]
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**sizes, bos_token_id=None, eos_token_id=None, pad_token_id=0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = getattr(transformers, f"{family}ForCausalLM")(config)
    print(f"{shape}: {sum(weight.numel() for weight in model.parameters()) / 1e9:.2f} billion parameters", flush=True)
    model.save_pretrained(folder)
    words = Tokenizer(models.WordLevel({f"w{number}": number for number in range(sizes["vocab_size"])}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0").save_pretrained(folder)


def write_repository(repository: Path, shape: str, files: Path, new_tokens: int) -> None:
    given = {"model": str(files), "max_new_tokens": str(new_tokens), "do_sample": "false"}
    lines = [f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}' for key, value in given.items()]
    for name, size in BATCH_SIZES.items():
        folder = repository / f"{shape}-{name}"
        (folder / "1").mkdir(parents=True)
        head = ['backend: "transformers"', f"max_batch_size: {size}"]
        (folder / "config.pbtxt").write_text("\n".join([*head, *lines]))


@contextmanager
def running_server(command: list[str], repository: Path) -> Iterator[int]:
    """The server's HTTP port; its log goes to standard error where it fails."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = int(listener.getsockname()[1])
    log_file = repository.parent / "server.log"
    flags = [f"--model-repository={repository}", f"--http-port={port}", "--allow-grpc=false", "--allow-metrics=false"]
    begun = time.monotonic()
    with log_file.open("w") as log:
        process = subprocess.Popen([*command, *flags], stdout=log, stderr=subprocess.STDOUT)
    try:
        while not is_ready(port):
            if process.poll() is not None or time.monotonic() - begun > TIMEOUT_S:
                sys.exit(f"the server did not become ready:\n{log_file.read_text()[-6000:]}")
            time.sleep(0.2)
        print(f"ready after {time.monotonic() - begun:.0f} s", flush=True)
        yield port
    finally:
        process.terminate()
        process.wait(60)


def is_ready(port: int) -> bool:
    try:
        return call(http.client.HTTPConnection("127.0.0.1", port, timeout=5), "/v2/health/ready")[0] == 200
    except OSError:
        return False


def call(connection: http.client.HTTPConnection, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection.request("GET" if body is None else "POST", path, body)
    response = connection.getresponse()
    return response.status, response.read()


class Client:
    """Sends prompts of its own, one after the other; leaves in the middle of one when it is told to stop."""

    def __init__(self, number: int, port: int, model: str, prompt_tokens: int) -> None:
        self.latencies: list[float] = []
        self.token_count = 0
        self._random = random.Random(number)
        self._path = f"/v2/models/{model}/generate"
        self._prompt_tokens = prompt_tokens
        self._is_stopped = False
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        self._connection.connect()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def forget(self) -> None:
        """From now on it is measured."""
        self.latencies.clear()
        self.token_count = 0

    def stop(self) -> None:
        self._is_stopped = True
        self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _run(self) -> None:
        while not self._is_stopped:
            words = [f"w{self._random.randrange(1, 30000)}" for _ in range(self._prompt_tokens)]
            body = json.dumps({"text_input": " ".join(words)}).encode()
            begun = time.monotonic()
            try:
                status, answer = call(self._connection, self._path, body)
            except (OSError, http.client.HTTPException):
                if self._is_stopped:
                    return
                raise
            if status != 200:
                raise RuntimeError(answer.decode())
            self.latencies.append(time.monotonic() - begun)
            self.token_count += len(json.loads(answer)["text_output"].split())


def executions(port: int, model: str) -> tuple[int, int]:
    _, answer = call(http.client.HTTPConnection("127.0.0.1", port), f"/v2/models/{model}/stats")
    stats = json.loads(answer)["model_stats"][0]
    return stats["inference_count"], stats["execution_count"]


def measure(port: int, model: str, client_count: int, prompt_tokens: int, seconds: float) -> float:
    """Prints one row; returns tokens a second."""
    clients = [Client(number, port, model, prompt_tokens) for number in range(client_count)]
    time.sleep(seconds / 2)  # shapes that are new to the GPU's libraries take longer
    before = executions(port, model)
    for client in clients:
        client.forget()
    begun = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - begun
    for client in clients:
        client.stop()
    latencies = [latency for client in clients for latency in client.latencies]
    rate = sum(client.token_count for client in clients) / took
    if not latencies:
        sys.exit(f"no request was answered in {seconds} s; raise --seconds")
    requests, batches = (now - then for now, then in zip(executions(port, model), before, strict=True))
    print(
        f"{model:<22}{client_count:>8}{rate:>12.0f}{len(latencies) / took:>12.2f}"
        f"{statistics.median(latencies):>10.2f}{requests / batches:>12.1f}",
        flush=True,
    )
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="falcon-7b,llama-2-7b")
    parser.add_argument("--clients", default="1,16,64")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--server", default=str(Path(sys.executable).with_name("tritonserver")))
    parser.add_argument("--build", nargs=2, metavar=("SHAPE", "FOLDER"), help="only write a model")
    args = parser.parse_args()
    if args.build:
        build_model(args.build[0], Path(args.build[1]))
        return
    for shape in args.shapes.split(","):
        with tempfile.TemporaryDirectory() as scratch:
            files, repository = Path(scratch, "files"), Path(scratch, "models")
            # In a process of its own, which leaves the GPU's memory to the server.
            subprocess.run([sys.executable, __file__, "--build", shape, str(files)], check=True)
            write_repository(repository, shape, files, args.new_tokens)
            with running_server(shlex.split(args.server), repository) as port:
                print(f"{'model':<22}{'clients':>8}{'tokens/s':>12}{'requests/s':>12}{'p50 s':>10}{'batch':>12}")
                for count in map(int, args.clients.split(",")):
                    rates = [
                        measure(port, f"{shape}-{name}", count, args.prompt_tokens, args.seconds)
                        for name in BATCH_SIZES
                    ]
                    print(f"{count} clients: batched over one at a time {rates[0] / rates[1]:.2f}", flush=True)


if __name__ == "__main__":
    main()
