"""Measures what it costs to choose tokens in other ways than greedily, on this machine's GPU, all ways in one process.

    python benchmarks/llm_sampling.py --models llama-2-7b qwen2-1.5b --batches 1 8 64

Weights are random, of the real shapes, and so are the vocabularies: words, numbers, and the signs of JSON, as many as the
model has. `--schema` and `--regex` ask for another grammar; `--different` gives each request a schema of its own, all of
them compiled before. Answers that follow a schema end where it says, so rates count the tokens that came.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import string
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from llm import MODELS, copy_bandwidth, few_bits, random_tensors

from trireme.llm.engine import EngineCore
from trireme.llm.executors.cuda.executor import CudaExecutor
from trireme.llm.executors.cuda.weights import join
from trireme.llm.grammar.compiler import GrammarCompiler
from trireme.llm.options import EngineOptions, WarmUpMode
from trireme.llm.request import SequenceOutput
from trireme.llm.sampling_params import Grammar, SamplingParams

WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "temperature": {"temperature": 1.0},
    "top-k and top-p": {"temperature": 0.7, "top_k": 20, "top_p": 0.8},
    "top-p": {"temperature": 1.0, "top_p": 0.9},
    "min-p": {"temperature": 1.0, "min_p": 0.05},
    "penalty": {"temperature": 1.0, "repetition_penalty": 1.1},
    "logprobs": {"temperature": 0.0, "logprobs": 5},
    "schema": {"temperature": 1.0},
}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 200, "maxLength": 4000},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 40},
        "kind": {"enum": ["whale", "ship", "man"]},
    },
    "required": ["name", "age", "tags", "kind"],
    "additionalProperties": False,
}


class RandomWords:
    """What grammars ask of a tokenizer; its tokens are bytes, then words of random letters, the last one ends texts."""

    bos_id = None

    def __init__(self, size: int) -> None:
        draw = random.Random(1)
        found = {bytes([number]): None for number in range(256)}
        while len(found) < size - 1:
            found.setdefault(_piece(draw).encode())
        self._pieces = [*found, b"</s>"]
        self._by_bytes = {piece: number for number, piece in enumerate(self._pieces)}
        self.vocab_size = size
        self.special_ids = frozenset([size - 1])

    def piece_bytes(self, token: int) -> bytes:
        return self._pieces[token]

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        return [self._by_bytes[bytes([byte])] for byte in text.encode()]


def _piece(draw: random.Random) -> str:
    word = "".join(draw.choice(string.ascii_lowercase) for _ in range(draw.randint(1, 10)))
    return draw.choice(
        [
            f" {word}",
            word,
            f" {word.capitalize()}",
            str(draw.randrange(1000)),
            draw.choice('"{}[],:.\n') + word,
            "".join(draw.choice('"{}[],: \n') for _ in range(draw.randint(2, 5))),
        ]
    )


def run(
    engine: EngineCore, batch: int, new: int, seed: int, way: dict[str, Any], grammars: list[Grammar] | None
) -> float:
    """The tokens per second of so many requests."""
    draw = random.Random(seed)
    done = threading.Semaphore(0)
    counts, errors = [0] * batch, set()

    def listener(index: int) -> Callable[[SequenceOutput], None]:
        def listen(output: SequenceOutput) -> None:
            counts[index] += len(output.token_ids)
            if output.finish_reason is not None:
                errors.add(output.error)
                done.release()

        return listen

    began = time.perf_counter()
    for index in range(batch):
        grammar = grammars[index % len(grammars)] if grammars else None
        params = SamplingParams(max_tokens=new, ignores_eos=grammar is None, grammar=grammar, seed=index, **way)
        engine.submit([draw.randrange(256, 20000) for _ in range(128)], params, listener(index))
    for _ in range(batch):
        done.acquire()
    assert errors == {""}, errors
    return sum(counts) / (time.perf_counter() - began)


def compile_all(compiler: GrammarCompiler, options: argparse.Namespace, count: int) -> list[Grammar]:
    if options.regex:
        return [compiler.regex(options.regex)]
    schema: dict[str, Any] = json.loads(options.schema) if options.schema else PERSON
    if not options.different:
        return [compiler.json_schema(schema)]
    return [compiler.json_schema({**schema, "title": f"request {number}", "maxProperties": 100 + number})
            if options.schema else compiler.json_schema(_own(number)) for number in range(count)]  # fmt: skip


def _own(number: int) -> dict[str, Any]:
    """The schema with a property that no other request's has."""
    properties = {**PERSON["properties"], f"field_{number}": {"type": "integer"}}  # type: ignore[dict-item]
    return {**PERSON, "properties": properties, "required": list(properties)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["llama-2-7b", "qwen2-1.5b"], choices=list(MODELS))
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--schema", default="", help="a JSON schema")
    parser.add_argument("--regex", default="", help="a pattern in place of a schema")
    parser.add_argument("--different", action="store_true", help="each request has a grammar of its own")
    options = parser.parse_args()
    device, dtype = torch.device("cuda"), torch.bfloat16
    print(f"{torch.cuda.get_device_name()}: {copy_bandwidth() / 1e12:.2f} TB/s in a product with one row")
    for name in options.models:
        spec = MODELS[name]
        weights = join(few_bits(random_tensors(spec, device, dtype), ""), spec, device, dtype)
        settings = EngineOptions(max_sequences=256, has_prefix_cache=False, warm_up=WarmUpMode.LOAD)
        engine = EngineCore(CudaExecutor(spec, weights, settings, device, dtype), settings)
        compiler = GrammarCompiler(RandomWords(spec.vocab_size), [spec.vocab_size - 1])  # type: ignore[arg-type]
        began = time.perf_counter()
        grammars = compile_all(compiler, options, max(options.batches))
        print(f"{name}: {len(grammars)} grammars compiled in {time.perf_counter() - began:.1f} s", flush=True)
        print(f"  {'tokens/s':18}" + "".join(f"{batch:>18}" for batch in options.batches))
        greedy: dict[int, float] = {}
        for way in options.ways:
            cells = []
            for batch in options.batches:
                following = grammars if way == "schema" else None
                rates = [
                    run(engine, batch, options.new, turn, WAYS[way], following) for turn in range(options.rounds + 1)
                ]
                rate = statistics.median(rates[1:])  # the first is for what it compiles
                share = rate / greedy.setdefault(batch, rate)
                cells.append(f"{rate:10.0f} ({share:4.2f})")
            print(f"  {way:18}" + "".join(f"{cell:>18}" for cell in cells), flush=True)
        engine.close()
        compiler.close()
        del engine, weights
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
