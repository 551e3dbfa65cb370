"""Measures how attention of single tokens is best cut on this GPU, against the time that reading the cache takes.

python benchmarks/llm_attention.py
"""

from __future__ import annotations

import itertools
import multiprocessing

import torch

from trireme.llm.kernels.decode_attention import DecodeScratch, DecodeTiling, decode_attention

LAYERS = 8
BLOCK = 16
CASES = {"llama-2-7b": (32, 32, 128), "qwen2-1.5b": (12, 2, 128), "falcon-7b": (71, 1, 64)}


def time_us(
    heads: int,
    kv_heads: int,
    head: int,
    rows: int,
    length: int,
    splits: int,
    tiling: DecodeTiling,
    only_compiles: bool = False,
) -> float:
    """Of one layer, recorded over several."""
    blocks = rows * (length // BLOCK + 1)
    shape = (LAYERS, blocks, kv_heads, BLOCK, head)
    keys, values = (torch.randn(shape, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    tables = torch.randperm(blocks, device="cuda", dtype=torch.int32).view(rows, -1)
    qkv = torch.randn(rows, (heads + 2 * kv_heads) * head, dtype=torch.bfloat16, device="cuda")
    slots = torch.arange(rows, dtype=torch.int32, device="cuda")
    positions = torch.full((rows,), length - 1, dtype=torch.int32, device="cuda")
    cosines = torch.randn(length, head, device="cuda")
    out = torch.empty(rows, heads * head, dtype=torch.bfloat16, device="cuda")
    scratch = DecodeScratch(rows, heads, head, splits, torch.device("cuda"))

    def launch(layer: int) -> None:
        decode_attention(
            qkv, keys[layer], values[layer], tables, slots, positions, cosines, out, scratch, heads=heads,
            scale=head**-0.5, splits=splits, tiling=tiling,
        )  # fmt: skip

    launch(0)
    torch.cuda.synchronize()
    if only_compiles:
        return 0.0
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(3):
            for layer in range(LAYERS):
                launch(layer)
    graph.replay()
    times = []
    for _ in range(5):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / (3 * LAYERS))
    return sorted(times)[2]


def tilings(group: int) -> list[DecodeTiling]:
    found = [DecodeTiling(16, step, 4, stages, True) for step, stages in itertools.product((32, 64, 128), (2, 3))]
    found += [DecodeTiling(16, 64, 2, 3, True), DecodeTiling(16, 32, 2, 4, True), DecodeTiling(16, 64, 4, 4, True)]
    if group == 1:
        found += [
            DecodeTiling(1, step, warps, 2, False)
            for step, warps in [(16, 1), (32, 1), (32, 2), (64, 2), (64, 4), (128, 4), (128, 8)]
        ]
    if group > 16:
        found += [DecodeTiling(64, step, warps, 3, True) for step, warps in itertools.product((32, 64), (4, 8))]
    return found


Job = tuple[str, int, int, int, DecodeTiling]


def jobs() -> list[Job]:
    found = []
    for (name, (heads, kv_heads, _)), (rows, length) in itertools.product(
        CASES.items(), [(1, 192), (8, 192), (64, 192), (256, 192), (16, 4096)]
    ):
        for tiling in tilings(heads // kv_heads):
            programs = rows * kv_heads * -(-heads // kv_heads // tiling.group_tile)
            for splits in sorted({1, max(1, min(32, 264 // programs))}):
                found.append((name, rows, length, splits, tiling))
    return found


def attempt(job: Job, only_compiles: bool = True) -> float:
    name, rows, length, splits, tiling = job
    try:
        return time_us(
            *CASES[name], 2 if only_compiles else rows, 32 if only_compiles else length, splits, tiling, only_compiles
        )
    except Exception as error:  # too large for the chip
        if "out of resource" not in str(error):
            raise
        return float("inf")


def main() -> None:
    with multiprocessing.get_context("spawn").Pool(14) as pool:
        pool.map(attempt, jobs(), chunksize=4)
    for (name, rows, length), group in itertools.groupby(jobs(), key=lambda job: job[:3]):
        _, kv_heads, head = CASES[name]
        floor = 2 * rows * length * kv_heads * head * 2 / 4.2e12 * 1e6
        found = sorted(((attempt(job, False), job[3], job[4]) for job in group), key=lambda entry: entry[0])
        best = [
            (round(us, 1), splits, (t.group_tile, t.step, t.warps, t.stages, t.uses_dot)) for us, splits, t in found[:5]
        ]
        print(f"{name:11} rows {rows:4} length {length:5} floor {floor:6.1f} us: {best}", flush=True)


if __name__ == "__main__":
    main()
