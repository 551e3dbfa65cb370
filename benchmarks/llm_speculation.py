"""Measures speculation on text that repeats its prompt: the same requests with and without it, in one process.

    python benchmarks/llm_speculation.py --shape llama-2-7b --batches 1 4 16         on a GPU
    python benchmarks/llm_speculation.py --model examples/model_repository/scribe/1 --device numpy
    python benchmarks/llm_speculation.py --shape small --device cpu

A shape has weights of our making: every matrix is as large as the real one and is computed in full, but the layers add
nothing to a token's embedding, and the last matrix gives each token its successor on a round of 512. So the answer is the
round, whatever else the prompt says. The prompt is the round with a share of its tokens altered (`--altered`): guesses
from it are right but for those. A folder's model is given its own words several times over instead.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from trireme.llm.engine import EngineCore
from trireme.llm.executor_choice import load_executor
from trireme.llm.executors.port import Executor
from trireme.llm.executors.torch.executor import TorchExecutor
from trireme.llm.models.spec import DecoderSpec, RopeSpec, shape_of
from trireme.llm.options import EngineOptions, SpeculationMode
from trireme.llm.request import SequenceOutput
from trireme.llm.sampling_params import SamplingParams
from trireme.llm.speculation.executor_pair import load_executors
from trireme.llm.tokenizer.loading import load_tokenizer

ROUND = 512
SMALL = DecoderSpec(
    "LlamaForCausalLM", 32000, 1024, 8, 16, 16, 64, 2816, 4096,
    rope=RopeSpec(1e4, 64, tuple(1e4 ** (-index / 32) for index in range(32))),
)  # fmt: skip
PASSAGE = (
    "The ship left the harbour at dawn, and nobody on the quay knew when she would be back with her oars and men. "
)


def shape(name: str) -> DecoderSpec:
    if name == "small":
        return SMALL
    from llm import MODELS  # which needs a GPU

    return MODELS[name]


def host_tensors(spec: DecoderSpec, dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
    """Random weights of the small shape; those of others are made on the device."""
    parts = ("attention_norm", "qkv", "o", "mlp_norm", "up", "down")
    layers = [f"layers.{number}.{part}" for number in range(spec.layer_count) for part in parts]
    for module in ("embed", *layers, "norm", "head"):
        size = shape_of(f"{module}.weight", spec)
        yield f"{module}.weight", torch.randn(size, dtype=dtype) * 0.02 if len(size) > 1 else torch.ones(size)


def going_round(made: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Weights with which each token of the round is followed by the next."""
    embedding = None
    for name, tensor in made:
        if name == "embed.weight":
            embedding = tensor
        elif name == "head.weight":
            assert embedding is not None
            tensor = torch.cat([embedding[:ROUND].roll(1, 0), embedding[ROUND:]])
        elif name.endswith((".o.weight", ".down.weight")):
            tensor = torch.zeros_like(tensor)
        yield name, tensor


def made_engines(options: argparse.Namespace, settings: EngineOptions) -> dict[str, EngineCore]:
    spec, device = replace(shape(options.shape), is_tied=False), torch.device(options.device)
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    engines = {}
    joined: Any = None
    for mode in (SpeculationMode.OFF, SpeculationMode.NGRAM):
        own = replace(settings, speculation=mode)
        executor: Executor
        if device.type == "cpu":
            executor = TorchExecutor(spec, going_round(host_tensors(spec, dtype)), own, device, dtype)
        else:
            from llm import random_tensors

            from trireme.llm.executors.cuda.executor import CudaExecutor
            from trireme.llm.executors.cuda.weights import join

            joined = joined or join(going_round(random_tensors(spec, device, dtype)), spec, device, dtype)
            executor = CudaExecutor(spec, joined, own, device, dtype)
        engines[mode.value] = EngineCore(executor, own)
    return engines


def loaded_engines(options: argparse.Namespace, settings: EngineOptions) -> dict[str, EngineCore]:
    engines = {"off": EngineCore(load_executor(options.model, settings, options.device), settings)}
    modes = [replace(settings, speculation=SpeculationMode.NGRAM)]
    if options.draft:
        modes.append(replace(settings, speculation=SpeculationMode.DRAFT, draft_model=Path(options.draft)))
    for own in modes:
        executor, draft = load_executors(options.model, own, options.device)
        engines[own.speculation.value] = EngineCore(executor, own, draft=draft)
    return engines


def prompts(options: argparse.Namespace, engine: EngineCore, count: int) -> list[list[int]]:
    chance = random.Random(0)
    found = []
    for number in range(count):
        if options.model:
            found.append(passage(options.model)[: engine.spec.max_positions - options.new - 1])
            continue
        start = 37 * number
        tokens = [(start + place) % ROUND for place in range(ROUND)]
        altered = [
            chance.randrange(ROUND, engine.spec.vocab_size) if chance.random() < options.altered else token
            for token in tokens
        ]
        found.append(altered + tokens[:8])
    return found


@cache
def passage(folder: str) -> list[int]:
    return load_tokenizer(Path(folder)).encode(PASSAGE * 4)


def run(engine: EngineCore, given: list[list[int]], new: int) -> tuple[float, list[list[int]]]:
    """Tokens per second from the last prompt's first token on, and the texts."""
    found: list[list[int]] = [[] for _ in given]
    firsts: dict[int, float] = {}
    done = threading.Semaphore(0)

    def listener(index: int) -> Any:
        def listen(output: SequenceOutput) -> None:
            firsts.setdefault(index, time.perf_counter())
            found[index] += output.token_ids
            if output.finish_reason is not None:
                assert not output.error, output.error
                done.release()

        return listen

    for index, prompt in enumerate(given):
        engine.submit(prompt, SamplingParams(max_tokens=new, ignores_eos=True), listener(index))
    for _ in given:
        done.acquire()
    return len(given) * (new - 1) / (time.perf_counter() - max(firsts.values())), found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="a folder, in place of a shape")
    parser.add_argument("--draft", default="", help="the folder of a draft model")
    parser.add_argument("--shape", default="small", help="small, or one of benchmarks/llm.py")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--new", type=int, default=0, help="tokens of an answer; 0: 384, or 64 of a folder's model")
    parser.add_argument("--tokens", type=int, default=7, help="speculation_tokens")
    parser.add_argument("--altered", type=float, default=0.05)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--invariant", action="store_true", help="batch_invariant: the texts are the same bit for bit")
    options = parser.parse_args()
    options.new = options.new or (64 if options.model else 384)
    settings = EngineOptions(
        max_sequences=64, cache_bytes=(16 << 30) if options.device.startswith("cuda") else 1 << 30,
        has_prefix_cache=False, speculation_tokens=options.tokens, is_batch_invariant=options.invariant,
    )  # fmt: skip
    engines = loaded_engines(options, settings) if options.model else made_engines(options, settings)
    for batch in options.batches:
        given = prompts(options, engines["off"], batch)
        speeds: dict[str, list[float]] = {name: [] for name in engines}
        texts: dict[str, list[list[int]]] = {}
        for turn in range(options.rounds + 1):
            if turn == 1:
                before = {name: engine.stats() for name, engine in engines.items()}
            for name, engine in engines.items():
                speed, texts[name] = run(engine, given, options.new)
                if turn:  # the first compiles and records
                    speeds[name].append(speed)
        for name, engine in engines.items():
            after = engine.stats()
            drafted, accepted, steps = (
                getattr(after, field) - getattr(before[name], field)
                for field in ("draft_tokens", "accepted_tokens", "steps")
            )
            same = sum(one == other for one, other in zip(texts[name], texts["off"], strict=True))
            speed = sorted(speeds[name])[len(speeds[name]) // 2]
            ratio = speed / sorted(speeds["off"])[len(speeds["off"]) // 2]
            told = f", {accepted / drafted:.0%} of {drafted} drafts right" if drafted else ""
            print(
                f"batch {batch:3} {name:6} {speed:9.1f} tokens/s, ratio {ratio:.2f}, {steps // options.rounds} steps, "
                f"{same} of {batch} texts equal{told}",
                flush=True,
            )
    for engine in engines.values():
        engine.close()


if __name__ == "__main__":
    main()
