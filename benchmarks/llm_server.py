"""Measures a served language model beside its engine alone: many clients that stream, tokens per second.

    python benchmarks/llm_server.py --port 8000 --model llama --clients 64 --prompt 128 --new 128 [--api openai]

Start the server first. Prompts are random token ids, or random words through the chat API; every token is one event.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import time


async def one_client(port: int, path: str, bodies: list[bytes], counts: list[int], firsts: list[float]) -> None:
    """Sends its requests one after another over one connection, and counts the events of each."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for body in bodies:
        began = time.perf_counter()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        events, seen = 0, b""
        while True:
            data = await reader.read(1 << 16)
            if not data:
                raise ConnectionError(seen[-500:])
            if not events:
                firsts.append(time.perf_counter() - began)
            events += data.count(b"data: ")
            seen = (seen + data)[-600:]
            if seen.endswith(b"0\r\n\r\n"):
                break
        if b"error" in seen:
            raise RuntimeError(seen.decode(errors="replace"))
        counts.append(events)
    writer.close()


def process(port: int, path: str, bodies: list[list[bytes]], gate: object, results: object) -> None:
    counts: list[int] = []
    firsts: list[float] = []

    async def all_clients() -> None:
        await asyncio.gather(*(one_client(port, path, own, counts, firsts) for own in bodies))

    gate.wait()  # type: ignore[attr-defined]
    began = time.perf_counter()
    asyncio.run(all_clients())
    results.put((sum(counts), began, time.perf_counter(), firsts))  # type: ignore[attr-defined]


def body(options: argparse.Namespace, seed: int) -> bytes:
    generator = random.Random(seed)
    if options.api == "openai":
        words = " ".join(generator.choice(["ship", "whale", "king", "river", "stone"]) for _ in range(options.prompt))
        fields = {
            "model": options.model,
            "messages": [{"role": "user", "content": words}],
            "max_tokens": options.new,
            "ignore_eos": True,
            "stream": True,
        }
    else:
        ids = [generator.randrange(5, options.vocab) for _ in range(options.prompt)]
        fields = {"input_ids": ids, "stream": True, "max_tokens": options.new, "ignore_eos": True}
    return json.dumps(fields).encode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--model", default="scribe")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=1, help="of each client, one after another")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--vocab", type=int, default=4000)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--api", choices=["generate", "openai"], default="generate")
    options = parser.parse_args()
    path = "/v1/chat/completions" if options.api == "openai" else f"/v2/models/{options.model}/generate_stream"
    context = multiprocessing.get_context("spawn")
    gate, results = context.Event(), context.Queue()
    workers = []
    for number in range(options.processes):
        own = [
            [body(options, client * 1000 + turn) for turn in range(options.requests)]
            for client in range(number, options.clients, options.processes)
        ]
        workers.append(context.Process(target=process, args=(options.port, path, own, gate, results)))
        workers[-1].start()
    time.sleep(1.5)
    gate.set()
    found = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    took = max(end for _, _, end, _ in found) - min(began for _, began, _, _ in found)
    tokens = sum(count for count, _, _, _ in found)
    firsts = sorted(first for _, _, _, own in found for first in own)
    print(
        f"{options.api}: {options.clients} clients, {tokens} events in {took:.2f} s: {tokens / took:.0f} tokens/s,"
        f" first token after {firsts[len(firsts) // 2] * 1000:.0f} ms in the middle"
    )


if __name__ == "__main__":
    main()
