"""Measures how products of few rows are best cut on this GPU: the table behind `trireme/llm/kernels/tilings.py`.

    python benchmarks/llm_kernels.py --rows 1 8 64 --out tilings.json
    python benchmarks/llm_kernels.py --rows 1 8 64 --bits int4

Each product is timed in a recorded graph over matrices that together exceed the cache; the vendor's library beside it.
In a step a launch begins while the one before it ends, where both fit into a processor's shared memory together: of
two cuts that are as fast alone, the smaller one is better there.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import time

import torch
from torch.nn import functional

from trireme.llm.kernels import activations, matmul
from trireme.llm.kernels.matmul import Tiling
from trireme.llm.kernels.packed import int4_fragments
from trireme.llm.kernels.packed.int4_fragments import Cut, Int4Fragments
from trireme.llm.kernels.packed.packed_matrix import PackedMatrix

SHAPES = {
    "llama-2-7b qkv": (12288, 4096, False),
    "llama-2-7b o": (4096, 4096, False),
    "llama-2-7b up": (11008, 4096, True),
    "llama-2-7b down": (4096, 11008, False),
    "llama-2-7b head": (32000, 4096, False),
    "qwen2-1.5b qkv": (2048, 1536, False),
    "qwen2-1.5b o": (1536, 1536, False),
    "qwen2-1.5b up": (8960, 1536, True),
    "qwen2-1.5b down": (1536, 8960, False),
    "qwen2-1.5b head": (151936, 1536, False),
    "falcon-7b in": (22848, 4544, False),
    "falcon-7b out": (4544, 22720, False),
    "falcon-7b head": (65024, 4544, False),
}
NORMED = ("qkv", "up")


def matrix(rows: int, columns: int, bits: str) -> torch.Tensor | PackedMatrix:
    """Random numbers of so many bits."""
    if bits == "bf16":
        return torch.empty(rows, columns, dtype=torch.bfloat16, device="cuda").normal_(0, 0.02)
    if bits == "int4":
        codes = torch.randint(-(2**31), 2**31 - 1, (rows, columns // 8), dtype=torch.int32, device="cuda")
        scales = torch.full((rows, columns // (64 if columns % 128 else 128)), 0.01, dtype=torch.float16, device="cuda")
        return PackedMatrix("int4", codes, scales)
    codes = torch.randint(-100, 100, (rows, columns), dtype=torch.int8, device="cuda")
    scales = torch.full((rows, 1), 0.01, dtype=torch.float32, device="cuda")
    return PackedMatrix("int8", codes, scales) if bits == "int8" else PackedMatrix("fp8", _float8(codes), scales)


def _float8(codes: torch.Tensor) -> torch.Tensor:
    return codes.to(torch.float8_e4m3fn)


def candidates(rows: int, k: int, is_gated: bool, bits: str) -> list[Tiling] | list[Cut]:
    """The cuts worth trying."""
    if bits == "int4":
        tiles = 1 if rows <= 8 else 2 if rows <= 16 else 4 if rows <= 32 else 8
        return [
            Cut(blocks, warps, ahead, resident)
            for blocks, warps, ahead, resident in itertools.product((1, 2, 4), (4, 8, 16), (2, 4), (1, 2, 3))
            if resident * warps <= 32
            and warps * blocks * 16 * (tiles * 8 + 1) * 4 <= 47 << 10
            and (blocks > 1 or not is_gated)
            and blocks * tiles <= 16
            and blocks * ahead <= 8
        ]
    if rows == 1 and bits != "bf16":
        return [
            Tiling(1, block_n, block_k, warps, 2)
            for block_n, block_k, warps in itertools.product((1, 2, 4, 8), (512, 1024, 2048, 4096), (1, 2, 4, 8))
            if 8 <= block_n * block_k / (warps * 32) <= 64 and block_k < 2 * k
        ]
    if bits != "bf16":
        block_m = 16 if rows <= 16 else 32 if rows <= 32 else 64
        return [
            Tiling(block_m, block_n, 128, 4, stages, splits)
            for block_n, stages, splits in itertools.product((32, 64, 128), (2, 3, 4), (1, 2, 4))
            if splits == 1 or not is_gated
        ]
    if rows == 1:
        return [
            Tiling(1, block_n, block_k, warps, 2)
            for block_n, block_k, warps in itertools.product((1, 2, 4), (512, 1024, 2048, 4096), (2, 4, 8))
            if 8 <= block_n * block_k / (warps * 32) <= 64
        ]
    block_m = 16 if rows <= 16 else 32 if rows <= 32 else 64 if rows <= 64 else 128
    sizes = [(32, 128), (64, 64), (64, 128), (128, 64)]
    return [
        Tiling(block_m, block_n, block_k, 4, stages, splits)
        for (block_n, block_k), stages, splits in itertools.product(sizes, (4, 6), (1, 2, 3, 4, 8))
        if (block_n + block_m) * block_k * 2 * stages <= 200 * 1024
        and (block_k == 64 or k % block_k == 0)
        and (splits == 1 or not is_gated)
    ]


class Case:
    """One product at one number of rows."""

    def __init__(self, name: str, rows: int, bits: str) -> None:
        self.name, self.rows = name, rows
        self.n, self.k, self.is_gated = SHAPES[name]
        self.height = self.n * (2 if self.is_gated else 1)
        self.weights = [matrix(self.height, self.k, bits)]
        self.bytes = self.weights[0].nbytes
        copies = max(2, min(48, (600 << 20) // self.bytes))
        self.weights += [matrix(self.height, self.k, bits) for _ in range(copies - 1)]
        self.x = torch.randn(rows, self.k, dtype=torch.bfloat16, device="cuda")
        self.out = torch.empty(rows, self.n, dtype=torch.bfloat16, device="cuda")
        self.scratch = matmul.SplitScratch(torch.device("cuda"))

    def launch(self, tiling: Tiling | Cut, weight: torch.Tensor | PackedMatrix | Int4Fragments) -> None:
        if isinstance(tiling, Cut):
            self.launch_fragments(tiling, weight)
            return
        is_normed = self.name.endswith(NORMED) and self.rows == 1
        residual = None if self.is_gated or is_normed else self.out
        matmul.few_rows(
            self.x,
            weight,
            tiling,
            out=self.out,
            residual=residual,
            norm_eps=1e-5 if is_normed else None,
            activation=activations.SILU if self.is_gated else activations.NONE,
            is_gated=self.is_gated,
            scratch=self.scratch,
        )

    def launch_fragments(self, cut: Cut, weight: Int4Fragments) -> None:
        is_normed = self.name.endswith(NORMED) and self.rows <= int4_fragments.NORMED_ROWS
        int4_fragments.product(
            self.x,
            weight,
            out=self.out,
            residual=None if self.is_gated or is_normed else self.out,
            norm_eps=1e-5 if is_normed else None,
            activation=activations.SILU if self.is_gated else activations.NONE,
            is_gated=self.is_gated,
            cut=cut,
        )

    def time_us(self, launch: object) -> float:
        assert callable(launch)
        for weight in self.weights[:2]:
            launch(weight)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for weight in self.weights:
                launch(weight)
        graph.replay()
        times = []
        for _ in range(5):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) * 1000 / len(self.weights))
        return sorted(times)[2]


def _compile(job: tuple[int, int, Tiling, bool, bool, str]) -> None:
    rows, k, tiling, is_gated, is_normed, bits = job
    n = 256
    x = torch.zeros(rows, k, dtype=torch.bfloat16, device="cuda")
    w = matrix(2 * n if is_gated else n, k, bits)
    out = torch.zeros(rows, n, dtype=torch.bfloat16, device="cuda")
    try:
        matmul.few_rows(
            x,
            w,
            tiling,
            out=out,
            residual=None if is_gated or is_normed else out,
            norm_eps=1e-5 if is_normed else None,
            activation=activations.SILU if is_gated else activations.NONE,
            is_gated=is_gated,
            scratch=matmul.SplitScratch(torch.device("cuda")),
        )
    except Exception:  # too large for the chip: the measurement skips it as well
        return


def precompile(rows: list[int], names: list[str], bits: str) -> None:
    """Compiles on all cores at once."""
    jobs = set()
    for count, name in itertools.product(rows, names):
        _, k, is_gated = SHAPES[name]
        is_normed = name.endswith(NORMED) and count == 1
        jobs |= {(count, k, tiling, is_gated, is_normed, bits) for tiling in candidates(count, k, is_gated, bits)}
    if bits == "int4":  # compiled by another compiler, in moments
        return
    with multiprocessing.get_context("spawn").Pool(14) as pool:
        pool.map(_compile, sorted(jobs, key=str), chunksize=4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 16, 32, 64, 128])
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), metavar="NAME", help="of those named above alone")
    parser.add_argument("--bits", choices=["bf16", "fp8", "int8", "int4"], default="bf16", help="of the matrices")
    parser.add_argument("--out", default="")
    options = parser.parse_args()
    began = time.time()
    precompile(options.rows, options.shapes, options.bits)
    print(f"compiled in {time.time() - began:.0f} s", flush=True)
    results = []
    for name, rows in itertools.product(options.shapes, options.rows):
        case = Case(name, rows, options.bits)
        library = math.inf
        if options.bits == "bf16":
            library = case.time_us(lambda weight, case=case: functional.linear(case.x, weight))
        measured = []
        if options.bits == "int4":
            case.weights = [int4_fragments.fragments_of(weight) for weight in case.weights]
        for tiling in candidates(rows, case.k, case.is_gated, options.bits):
            try:
                measured.append((case.time_us(lambda weight, t=tiling, case=case: case.launch(t, weight)), tiling))
            except Exception:  # out of shared memory
                continue
        measured.sort(key=lambda pair: pair[0])
        best = [(round(case.bytes / us / 1e6, 2), [*_values(tiling)]) for us, tiling in measured[:4]]
        results.append({"name": name, "rows": rows, "library": round(case.bytes / library / 1e6, 2), "best": best})
        print(f"{name:18} rows {rows:4} library {case.bytes / library / 1e6:5.2f} TB/s, ours {best[:3]}", flush=True)
        del case
        torch.cuda.empty_cache()
    if options.out:
        with open(options.out, "w") as file:
            json.dump(results, file)


def _values(tiling: Tiling | Cut) -> tuple[int, ...]:
    if isinstance(tiling, Cut):
        return tiling.blocks, tiling.warps, tiling.ahead, tiling.resident
    return tiling.block_m, tiling.block_n, tiling.block_k, tiling.warps, tiling.stages, tiling.splits


if __name__ == "__main__":
    main()
