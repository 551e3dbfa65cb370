"""Measures the language-model engine on this machine's GPU: tokens per second through the engine, prompts included.

    python benchmarks/llm.py --models llama-2-7b qwen2-1.5b falcon-7b --batches 1 8 64 256

Weights are random, of the real shapes. Beside each number stands the bandwidth that the steps achieved, and the one that
a plain copy achieves on the same card.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch

from trireme.llm.engine import EngineCore
from trireme.llm.executors.cuda.executor import CudaExecutor
from trireme.llm.executors.cuda.weights import join
from trireme.llm.kernels.packed.packed_matrix import PackedMatrix
from trireme.llm.models.spec import DecoderSpec, RopeSpec
from trireme.llm.options import EngineOptions, WarmUpMode
from trireme.llm.request import SequenceOutput
from trireme.llm.sampling_params import SamplingParams


def rope(theta: float, size: int) -> RopeSpec:
    return RopeSpec(theta, size, tuple(theta ** (-2 * index / size) for index in range(size // 2)))


WAVE_PROMPTS = (3, 17, 60, 128, 300, 900)
MODELS = {
    "llama-2-7b": DecoderSpec(
        "LlamaForCausalLM", 32000, 4096, 32, 32, 32, 128, 11008, 4096, norm_eps=1e-5, rope=rope(10000.0, 128)
    ),
    "qwen2-1.5b": DecoderSpec(
        "Qwen2ForCausalLM", 151936, 1536, 28, 12, 2, 128, 8960, 32768, rope=rope(1e6, 128), is_tied=True
    ),
    "falcon-7b": DecoderSpec(
        "FalconForCausalLM", 65024, 4544, 32, 71, 1, 64, 18176, 2048, norm="layer", norm_eps=1e-5, activation="gelu",
        is_gated=False, is_parallel=True, rope=rope(10000.0, 64), is_tied=True,
    ),
}  # fmt: skip


def random_tensors(spec: DecoderSpec, device: torch.device, dtype: torch.dtype) -> Iterable[tuple[str, torch.Tensor]]:
    """Weights of the right shapes that mean nothing, made on the device: for measurements."""
    generator = torch.Generator(device).manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=device).normal_(0, 0.02, generator=generator)

    def ones(size: int) -> torch.Tensor:
        return torch.ones(size, dtype=dtype, device=device)

    hidden, gated = spec.hidden_size, 2 if spec.is_gated else 1
    yield "embed.weight", normal(spec.vocab_size, hidden)
    for index in range(spec.layer_count):
        prefix = f"layers.{index}."
        for name in ("attention_norm",) if spec.is_parallel else ("attention_norm", "mlp_norm"):
            yield f"{prefix}{name}.weight", ones(hidden)
            if spec.norm == "layer":
                yield f"{prefix}{name}.bias", torch.zeros(hidden, dtype=dtype, device=device)
        yield f"{prefix}qkv.weight", normal(spec.qkv_size, hidden)
        yield f"{prefix}o.weight", normal(hidden, spec.head_count * spec.head_size)
        yield f"{prefix}up.weight", normal(gated * spec.mlp_size, hidden)
        yield f"{prefix}down.weight", normal(hidden, spec.mlp_size)
    yield "norm.weight", ones(hidden)
    if spec.norm == "layer":
        yield "norm.bias", torch.zeros(hidden, dtype=dtype, device=device)
    if not spec.is_tied:
        yield "head.weight", normal(spec.vocab_size, hidden)


def few_bits(named: Iterable[tuple[str, torch.Tensor]], bits: str) -> Iterator[tuple[str, torch.Tensor | PackedMatrix]]:
    """The matrices in so many bits, with random numbers of the same size; the head in eight, as it is built."""
    for name, tensor in named:
        if not bits or tensor.dim() < 2 or name == "embed.weight":
            yield name, tensor
            continue
        rows, columns = tensor.shape
        if bits == "int4" and name != "head.weight":
            codes = torch.randint(-(2**31), 2**31 - 1, (rows, columns // 8), dtype=torch.int32, device=tensor.device)
            groups = columns // (64 if columns % 128 else 128)
            yield name, PackedMatrix("int4", codes, torch.full_like(tensor[:, :groups], 0.0043, dtype=torch.float16))
            continue
        is_fp8 = bits != "int8"
        scales = tensor.float().abs().amax(1, keepdim=True) / (448 if is_fp8 else 127)
        codes = tensor.float() / scales
        codes = codes.to(torch.float8_e4m3fn) if is_fp8 else codes.round().to(torch.int8)
        yield name, PackedMatrix("fp8" if is_fp8 else "int8", codes, scales)


def run_batch(engine: EngineCore, batch: int, prompt: int, new: int, seed: int, share: int = 0) -> dict[str, float]:
    """So many requests at once; `share` tokens of their prompts are the same in all."""
    generator = torch.Generator().manual_seed(seed)
    size = engine.spec.vocab_size
    common = torch.randint(0, size, (share,), generator=generator).tolist()
    prompts = [common + torch.randint(0, size, (prompt - share,), generator=generator).tolist() for _ in range(batch)]
    done = threading.Semaphore(0)
    firsts: list[float] = []
    errors: list[str] = []
    counts = [0] * batch

    def listener(index: int) -> Any:
        def listen(output: SequenceOutput) -> None:
            if not counts[index]:
                firsts.append(time.perf_counter())
            counts[index] += len(output.token_ids)
            if output.finish_reason is not None:
                errors.append(output.error)
                done.release()

        return listen

    params = SamplingParams(max_tokens=new, ignores_eos=True)
    began = time.perf_counter()
    for index, tokens in enumerate(prompts):
        engine.submit(tokens, params, listener(index))
    for _ in range(batch):
        done.acquire()
    took = time.perf_counter() - began
    assert not any(errors), errors
    assert counts == [new] * batch, counts
    last_first = max(firsts) - began
    steps = new - 1
    return {
        "tokens_per_s": batch * new / took,
        "first_token_s": min(firsts) - began,
        "prefill_s": last_first,
        "step_ms": (took - last_first) / steps * 1000,
    }


def waves(engine: EngineCore, counts: tuple[int, ...] = (40, 256, 20, 57, 3, 200, 1, 100, 3, 9)) -> None:
    """Requests of many lengths, some of which come late: the longest wait between two pieces of one text."""
    draw = random.Random(5)
    print("  waves of requests, the longest wait of each:", end="", flush=True)
    for count in counts:
        done = threading.Semaphore(0)
        gaps: list[float] = []

        def listener(gaps: list[float] = gaps, done: threading.Semaphore = done) -> Any:
            last = [time.perf_counter()]

            def listen(output: SequenceOutput) -> None:
                now = time.perf_counter()
                gaps.append(now - last[0])
                last[0] = now
                assert not output.error, output.error
                if output.finish_reason is not None:
                    done.release()

            return listen

        for _ in range(count):
            tokens = [draw.randrange(engine.spec.vocab_size) for _ in range(draw.choice(WAVE_PROMPTS))]
            engine.submit(tokens, SamplingParams(max_tokens=draw.choice((4, 20, 40)), ignores_eos=True), listener())
            if draw.random() < 0.2:
                time.sleep(draw.random() * 0.02)
        for _ in range(count):
            done.acquire()
        print(f" {count}: {max(gaps):.2f} s", end=";" if count is not counts[-1] else "\n", flush=True)


def copy_bandwidth() -> float:
    """Bytes read in a large product with one row, per second."""
    weight = torch.empty(65536, 16384, dtype=torch.bfloat16, device="cuda").normal_()
    x = torch.randn(16384, 1, dtype=torch.bfloat16, device="cuda")
    torch.mv(weight, x[:, 0])
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(5):
        torch.mv(weight, x[:, 0])
    end.record()
    torch.cuda.synchronize()
    return 5 * weight.nbytes / (begin.elapsed_time(end) / 1000)


def profile(engine: EngineCore, batch: int, prompt: int, rows: int = 14) -> None:
    """Where the time of steps goes, by kernel."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        run_batch(engine, batch, prompt, 16, 99)
        torch.cuda.synchronize()
    averages = sorted(profiler.key_averages(), key=lambda entry: -entry.self_device_time_total)[:rows]
    for entry in averages:
        total, count = entry.self_device_time_total, entry.count
        print(f"    {total / 1000:9.2f} ms {count:6} x {total / count:8.1f} us  {entry.key[:90]}")


def long_prompts(engine: EngineCore, spec: DecoderSpec) -> None:
    """Prompts of 4,096 tokens, 16 at once, as a share of the card's bf16 rate; and a prefix that many have in common."""
    size = min(4096, spec.max_positions - 128)
    run_batch(engine, 16, size, 128, 20)  # compiles and records what such steps need
    found = run_batch(engine, 16, size, 128, 21)
    active = sum(
        product.weight.numel()
        for layer in engine.executor._weights.layers  # type: ignore[attr-defined]
        for product in (layer.qkv, layer.o, layer.up, layer.down)
        if product is not None
    )
    attention = 2 * spec.layer_count * spec.head_count * spec.head_size * size
    rate = 16 * size * (2 * active + attention) / found["prefill_s"] / 1e12
    print(
        f"  16 prompts of {size}: {found['tokens_per_s']:.0f} tokens/s, prompts {found['prefill_s'] * 1000:.0f} ms"
        f" = {rate:.0f} TFLOP/s, {rate / 7.9:.0f} % of 790; step {found['step_ms']:.2f} ms",
        flush=True,
    )
    run_batch(engine, 1, 1056, 2, 30, share=1024)
    cold = statistics.median(run_batch(engine, 1, 1056, 2, 100 + turn)["first_token_s"] for turn in range(15))
    engine._scheduler.limits = replace(engine._scheduler.limits, has_prefix_cache=True)
    run_batch(engine, 1, 1056, 2, 40, share=1024)
    run_batch(engine, 1, 1056, 2, 40, share=1024)
    warm = statistics.median(shared_prefix(engine, 1024, 32, turn) for turn in range(15))
    engine._scheduler.limits = replace(engine._scheduler.limits, has_prefix_cache=False)
    print(
        f"  a prefix of 1024 tokens, medians: first token after {cold * 1000:.1f} ms cold, {warm * 1000:.1f} ms where it is known"
        f" ({warm / cold:.2f})",
        flush=True,
    )


def shared_prefix(engine: EngineCore, known: int, fresh: int, turn: int) -> float:
    """The time to the first token of a prompt whose beginning is in the cache."""
    generator = torch.Generator().manual_seed(77)
    common = torch.randint(0, engine.spec.vocab_size, (known,), generator=generator).tolist()
    times = []
    for number in range(2):
        rest = torch.randint(
            0, engine.spec.vocab_size, (fresh,), generator=generator.manual_seed(100 + turn * 2 + number)
        )
        done = threading.Semaphore(0)
        first: list[float] = []

        def listen(output: SequenceOutput, first: list[float] = first, done: threading.Semaphore = done) -> None:
            first.append(time.perf_counter())
            if output.finish_reason is not None:
                done.release()

        began = time.perf_counter()
        engine.submit(common + rest.tolist(), SamplingParams(max_tokens=2, ignores_eos=True), listen)
        done.acquire()
        times.append(first[0] - began)
    return times[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64, 256])
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--step-tokens", type=int, default=16384)
    parser.add_argument("--quantize", choices=["", "fp8", "int8", "int4"], default="", help="the layers' matrices")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--long", action="store_true", help="also prompts of 4,096 tokens, and shared ones of 1,024")
    parser.add_argument("--waves", action="store_true", help="also requests of many lengths that come in waves")
    parser.add_argument("--warm-up", choices=[mode.value for mode in WarmUpMode], default=WarmUpMode.LOAD.value)
    parser.add_argument("--out", default="")
    options = parser.parse_args()
    ceiling = copy_bandwidth()
    print(f"{torch.cuda.get_device_name()}: {ceiling / 1e12:.2f} TB/s in a product with one row")
    results = []
    device, dtype = torch.device("cuda"), torch.bfloat16
    for name in options.models:
        spec = MODELS[name]
        began = time.perf_counter()
        weights = join(few_bits(random_tensors(spec, device, dtype), options.quantize), spec, device, dtype)
        torch.cuda.synchronize()
        settings = EngineOptions(
            max_sequences=256,
            max_step_tokens=options.step_tokens,
            has_prefix_cache=False,
            warm_up=WarmUpMode(options.warm_up),  # which steps a round has depends on how its requests come in
        )
        executor = CudaExecutor(spec, weights, settings, device, dtype)
        engine = EngineCore(executor, settings)
        print(f"{name}: weights {weights.size_bytes / 1e9:.2f} GB, {executor.limits.block_count} blocks", flush=True)
        run_batch(engine, 1, options.prompt, 2, 1)
        print(f"  first token after {time.perf_counter() - began:.1f} s", flush=True)
        for batch in options.batches:
            run_batch(engine, batch, options.prompt, min(8, options.new), 2)
            found = max((run_batch(engine, batch, options.prompt, options.new, 3 + turn) for turn in range(2)),
                        key=lambda result: result["tokens_per_s"])  # fmt: skip
            floor_ms = weights.size_bytes / ceiling * 1000
            results.append({"model": name, "batch": batch, **found})
            print(
                f"  batch {batch:4}: {found['tokens_per_s']:9.1f} tokens/s, step {found['step_ms']:6.2f} ms"
                f" (weights alone {floor_ms:.2f}), prompts {found['prefill_s'] * 1000:7.1f} ms,"
                f" {weights.size_bytes / found['step_ms'] / 1e9:.2f} TB/s of weights",
                flush=True,
            )
            if options.profile:
                profile(engine, batch, options.prompt)
        if options.waves:
            waves(engine)
        if options.long:
            long_prompts(engine, spec)
        engine.close()
        del weights, executor, engine
        torch.cuda.empty_cache()
    if options.out:
        with open(options.out, "w") as file:
            json.dump(results, file)


if __name__ == "__main__":
    main()
