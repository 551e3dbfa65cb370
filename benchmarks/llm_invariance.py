"""Counts texts that change with what runs beside them, with and without the batch-invariant mode, and times both.

    python benchmarks/llm_invariance.py --model llama-2-7b

Random weights of the real shape; sequences with seeds run alone, then together, then together in small steps with few
blocks, so that prompts are cut and sequences are preempted.
"""

from __future__ import annotations

import argparse
import queue
from typing import Any

import torch
from llm import MODELS, random_tensors, run_batch

from trireme.llm.engine import EngineCore
from trireme.llm.executors.cuda.executor import CudaExecutor
from trireme.llm.executors.cuda.weights import DecoderWeights, join
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.options import EngineOptions, WarmUpMode
from trireme.llm.sampling_params import SamplingParams

DEVICE, DTYPE = torch.device("cuda"), torch.bfloat16


def start(spec: DecoderSpec, weights: DecoderWeights, **settings: Any) -> EngineCore:
    options = EngineOptions(**{"max_sequences": 256, "cache_bytes": 16 << 30, "warm_up": WarmUpMode.OFF, **settings})
    return EngineCore(CudaExecutor(spec, weights, options, DEVICE, DTYPE), options)


def texts(engine: EngineCore, prompts: list[list[int]], new: int, together: bool) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in prompts]
    done: queue.SimpleQueue[str] = queue.SimpleQueue()
    for index, prompt in enumerate(prompts):
        params = SamplingParams(max_tokens=new, ignores_eos=True, temperature=1.0 if index % 2 else 0.0, seed=index)

        def listen(output: Any, own: list[int] = found[index]) -> None:
            own += output.token_ids
            if output.finish_reason is not None:
                done.put(output.error)

        engine.submit(prompt, params, listen)
        if not together:
            assert not done.get()
    for _ in prompts if together else ():
        assert not done.get()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="llama-2-7b", choices=list(MODELS))
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--new", type=int, default=48)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64, 256])
    options = parser.parse_args()
    spec = MODELS[options.model]
    weights = join(random_tensors(spec, DEVICE, DTYPE), spec, DEVICE, DTYPE)
    generator = torch.Generator().manual_seed(1)
    sizes = torch.randint(1, 400, (options.prompts,), generator=generator).tolist()
    prompts = [torch.randint(0, spec.vocab_size, (size,), generator=generator).tolist() for size in sizes]
    for is_invariant in (True, False):
        engine = start(spec, weights, is_batch_invariant=is_invariant)
        alone = texts(engine, prompts, options.new, together=False)
        others = {"together": texts(engine, prompts, options.new, together=True)}
        for batch in options.batches:
            run_batch(engine, batch, 128, 8, 2)
            found = run_batch(engine, batch, 128, 128, 3)
            print(f"  batch {batch}: {found['tokens_per_s']:.0f} tokens/s, step {found['step_ms']:.2f} ms", flush=True)
        engine.close()
        few = PRESSED_BLOCKS * 2 * spec.layer_count * spec.kv_head_count * 16 * spec.head_size * DTYPE.itemsize
        pressed = start(spec, weights, is_batch_invariant=is_invariant, cache_bytes=few, max_step_tokens=96)
        others["in small steps with few blocks"] = texts(pressed, prompts, options.new, together=True)
        preemptions = pressed.stats().preemptions
        pressed.close()
        for label, found_texts in others.items():
            same = sum(one == other for one, other in zip(alone, found_texts, strict=True))
            print(
                f"{'batch-invariant' if is_invariant else 'plain'}, {label}: {same} of {len(prompts)} texts are as alone"
                + (f" ({preemptions} preemptions)" if "few" in label else ""),
                flush=True,
            )


PRESSED_BLOCKS = 120
"""Of 16 tokens each: too few for all sequences at once."""

if __name__ == "__main__":
    main()
