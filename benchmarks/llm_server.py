"""Measures a served language model beside its engine alone: clients that stream, each request behind the one before.

    python benchmarks/llm_server.py --make /tmp/repository --from /tmp/models/llama-2-7b
    trireme serve /tmp/repository
    python benchmarks/llm_server.py --api grpc --clients 64 --requests 4
    python benchmarks/llm_server.py --api engine --from /tmp/models/llama-2-7b --clients 64 --requests 4

`--make` writes a repository with the model `language-model` and a tokenizer that has a word for every id, so that texts
have as many tokens as words. Prompts are random and never repeat (`--seed` begins another series). The apis are
`generate` (Triton's generate_stream with ids), `grpc` (streams with ids), `openai` (chat with words), `ensemble`
(generate_stream with words of a repository such as examples/inflight_batcher_llm, whose `tensorrt_llm/1/model` is the
folder) and `engine`: the same clients in this process, on the engine of the folder.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODEL = "language-model"
TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"


class Tally:
    """What the clients of a process have seen."""

    def __init__(self) -> None:
        self.tokens = 0
        self.firsts: list[float] = []


def ids_of(options: argparse.Namespace, client: int, turn: int) -> list[int]:
    generator = random.Random(f"{options.seed} {client} {turn}")
    return [generator.randrange(5, options.vocab) for _ in range(options.prompt)]


def http_body(options: argparse.Namespace, client: int, turn: int) -> bytes:
    ids = ids_of(options, client, turn)
    if options.api == "generate":
        return json.dumps({"input_ids": ids, "stream": True, "max_tokens": options.new, "ignore_eos": True}).encode()
    text = " ".join(f"w{index}" for index in ids)
    if options.api == "ensemble":
        return json.dumps({"text_input": text, "max_tokens": options.new, "end_id": -1, "stream": True}).encode()
    return json.dumps(
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": options.new,
            "ignore_eos": True,
            "stream": True,
        }
    ).encode()  # fmt: skip


async def http_client(options: argparse.Namespace, client: int, tally: Tally) -> None:
    """Its requests one after another over one connection; every token is one event."""
    path = {
        "openai": "/v1/chat/completions",
        "generate": f"/v2/models/{MODEL}/generate_stream",
        "ensemble": "/v2/models/ensemble/generate_stream",
    }[options.api]
    reader, writer = await asyncio.open_connection("127.0.0.1", options.port)
    for turn in range(options.requests):
        body = http_body(options, client, turn)
        began = time.perf_counter()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        events, seen = 0, b""
        while not seen.endswith(b"0\r\n\r\n"):
            data = await reader.read(1 << 16)
            if not data:
                raise ConnectionError(seen[-500:])
            if not events:
                tally.firsts.append(time.perf_counter() - began)
            events += data.count(b"data: ")
            seen = (seen + data)[-600:]
        if b"error" in seen:
            raise RuntimeError(seen.decode(errors="replace"))
        if events < options.new:
            raise RuntimeError(f"{events} events for {options.new} tokens")
        tally.tokens += options.new
    writer.close()


async def grpc_client(options: argparse.Namespace, client: int, tally: Tally) -> None:
    """Its requests one after another on one stream."""
    import numpy as np
    import tritonclient.grpc.aio as triton

    channel = triton.InferenceServerClient(f"127.0.0.1:{options.grpc_port}")
    wanted = json.dumps({"max_tokens": options.new, "ignore_eos": True}).encode()
    for turn in range(options.requests):
        inputs = [
            triton.InferInput("input_ids", [options.prompt], "INT64"),
            triton.InferInput("stream", [1], "BOOL"),
            triton.InferInput("sampling_parameters", [1], "BYTES"),
        ]
        inputs[0].set_data_from_numpy(np.array(ids_of(options, client, turn), dtype=np.int64))
        inputs[1].set_data_from_numpy(np.array([True]))
        inputs[2].set_data_from_numpy(np.array([wanted], dtype=np.object_))

        async def requests(inputs: Any = inputs) -> Any:
            yield {"model_name": MODEL, "inputs": inputs, "enable_empty_final_response": True}

        began = time.perf_counter()
        count = 0
        async for result, error in channel.stream_infer(requests()):
            if error is not None:
                raise error
            if not count:
                tally.firsts.append(time.perf_counter() - began)
            answer = result.get_response()
            count += bool(answer.outputs)
            if answer.parameters["triton_final_response"].bool_param:
                break
        tally.tokens += count
    await channel.close()


def engine_clients(options: argparse.Namespace) -> tuple[float, Tally]:
    """The same load on the engine itself: a client's next request is sent when its last one has ended."""
    import threading

    from trireme.llm.engine import EngineCore
    from trireme.llm.executor_choice import load_executor
    from trireme.llm.options import EngineOptions
    from trireme.llm.sampling_params import SamplingParams

    settings = EngineOptions(max_sequences=256)
    engine = EngineCore(load_executor(options.source, settings, "auto"), settings)
    params = SamplingParams(max_tokens=options.new, ignores_eos=True)
    for attempt in range(2):  # the first time compiles and records what the load needs
        tally, left = Tally(), threading.Semaphore(0)

        def send(client: int, turn: int, tally: Tally = tally, left: Any = left, attempt: int = attempt) -> None:
            began, seen = time.perf_counter(), [0]

            def listen(output: Any) -> None:
                if not seen[0]:
                    tally.firsts.append(time.perf_counter() - began)
                seen[0] += len(output.token_ids)
                if output.finish_reason is not None:
                    tally.tokens += seen[0]
                    if turn + 1 < options.requests:
                        send(client, turn + 1)
                    else:
                        left.release()

            engine.submit(ids_of(options, client + 1000 * attempt, turn), params, listen)

        began = time.perf_counter()
        for client in range(options.clients):
            send(client, 0)
        for _ in range(options.clients):
            left.acquire()
        took = time.perf_counter() - began
    engine.close()
    return took, tally


def process(options: argparse.Namespace, clients: list[int], gate: Any, results: Any) -> None:
    tally = Tally()
    client_of: Callable[..., Any] = http_client
    if options.api == "grpc":
        import tritonclient.grpc.aio  # noqa: F401 - takes a second, before the clock starts

        client_of = grpc_client

    async def all_clients() -> None:
        await asyncio.gather(*(client_of(options, client, tally) for client in clients))

    gate.wait()
    began = time.perf_counter()
    asyncio.run(all_clients())
    results.put((tally.tokens, began, time.perf_counter(), tally.firsts))


def make(options: argparse.Namespace) -> None:
    """A repository around a folder of weights."""
    folder = Path(options.make) / MODEL
    (folder / "1").mkdir(parents=True, exist_ok=True)
    source = Path(options.source).resolve()
    (folder / "config.pbtxt").write_text(
        f'backend: "llm" parameters {{ key: "model" value {{ string_value: "{source}" }} }}\n'
    )
    words = {f"w{index}": index for index in range(options.vocab)}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"},
    }  # fmt: skip
    (source / "tokenizer.json").write_text(json.dumps(tokenizer))
    (source / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE, "unk_token": "w0"})
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--api", choices=["generate", "grpc", "openai", "ensemble", "engine"], default="generate")
    parser.add_argument("--make", metavar="REPOSITORY", help="write a repository, and do nothing else")
    parser.add_argument("--from", dest="source", metavar="FOLDER", help="the model's weights and config.json")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--grpc-port", type=int, default=8001)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=1, help="of each client, one after another")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.make:
        make(options)
        return
    if options.api == "engine":
        took, tally = engine_clients(options)
        show(options, took, tally.tokens, tally.firsts)
        return
    context = multiprocessing.get_context("spawn")
    gate, results = context.Event(), context.Queue()
    workers = [
        context.Process(
            target=process, args=(options, list(range(number, options.clients, options.processes)), gate, results)
        )
        for number in range(options.processes)
    ]
    for worker in workers:
        worker.start()
    time.sleep(4 if options.api == "grpc" else 1.5)
    gate.set()
    found = [results.get() for _ in workers]
    took = max(end for _, _, end, _ in found) - min(began for _, began, _, _ in found)
    show(options, took, sum(count for count, *_ in found), [first for *_, own in found for first in own])


def show(options: argparse.Namespace, took: float, tokens: int, firsts: list[float]) -> None:
    middle = sorted(firsts)[len(firsts) // 2]
    print(
        f"{options.api}: {options.clients} clients, {tokens} tokens in {took:.2f} s: {tokens / took:.0f} tokens/s,"
        f" first token after {middle * 1000:.0f} ms in the middle",
        flush=True,
    )


if __name__ == "__main__":
    main()
