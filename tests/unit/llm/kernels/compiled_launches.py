"""Compiles launches of the kernels for a GPU that is not there, and prints the shared memory that each takes as JSON.

`python compiled_launches.py 8.6`: the functions that launch kernels run as they are, with a driver that only compiles.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

SHARED_BYTES = {(8, 0): 163 << 10, (8, 6): 99 << 10, (8, 9): 99 << 10, (9, 0): 227 << 10}
"""What a program may take, by compute capability."""
CPU = torch.device("cpu")
Launch = tuple[str, Callable[[], object]]


class CompilingDriver:
    """Stands for the GPU before the compiler."""

    def __init__(self, capability: tuple[int, int]) -> None:
        self._target = GPUTarget("cuda", 10 * capability[0] + capability[1], 32)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        return 0


def stand_for(capability: tuple[int, int]) -> list[Any]:
    """From now on launches are compiled for such a GPU; what they give is added to the list."""
    driver.set_active(CompilingDriver(capability))
    properties = SimpleNamespace(shared_memory_per_block_optin=SHARED_BYTES[capability])
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_capability = lambda device=None: capability
    torch.cuda.get_device_properties = lambda device=None: properties
    compiled: list[Any] = []
    run = JITFunction.run

    def only_compile(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        compiled.append(run(self, *args, grid=grid, warmup=True, **options))
        return compiled[-1]

    JITFunction.run = only_compile
    return compiled


def empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


def products() -> Iterator[Launch]:
    from trireme.llm.kernels import matmul, tilings

    scratch = matmul.SplitScratch(CPU)
    for rows, n, k, is_gated in (
        (1, 4096, 4096, False),
        (8, 4096, 4096, False),
        (32, 4096, 4096, False),
        (64, 11008, 4096, True),
        (64, 4096, 11008, False),
    ):
        tiling = tilings.tiling_for(rows, n, k, is_gated)
        assert tiling is not None
        x, w, out = empty(rows, k), empty(n * (1 + is_gated), k), empty(rows, n)
        yield (
            f"product {rows} x {n} x {k}",
            lambda x=x, w=w, t=tiling, o=out, g=is_gated: matmul.few_rows(x, w, t, out=o, is_gated=g, scratch=scratch),
        )


def packed_products() -> Iterator[Launch]:
    from trireme.llm.kernels import matmul, tilings
    from trireme.llm.kernels.packed.packed_matrix import PackedMatrix

    n, k = 4096, 4096
    int8 = PackedMatrix("int8", empty(n, k, dtype=torch.int8), empty(n, 1, dtype=torch.float32))
    int4 = PackedMatrix("int4", empty(n, k // 8, dtype=torch.int32), empty(n, k // 128, dtype=torch.float16))
    for matrix in (int8, int4):
        for rows in (1, 64):
            tiling = tilings.packed_tiling_for(rows, n, k, False, matrix.bits)
            assert tiling is not None
            x, out = empty(rows, k), empty(rows, n)
            yield (
                f"{matrix.bits} product of {rows}",
                lambda x=x, w=matrix, t=tiling, o=out: matmul.few_rows(x, w, t, out=o),
            )


def attention(cache: torch.dtype) -> Iterator[Launch]:
    from trireme.llm.kernels.chunk_attention import chunk_attention
    from trireme.llm.kernels.decode_attention import DecodeScratch, decode_attention

    for rows, heads, kv_heads, size, dtype in (
        (1, 32, 32, 128, torch.bfloat16),
        (4, 32, 8, 128, torch.bfloat16),
        (64, 71, 1, 64, torch.bfloat16),
        (4, 8, 1, 256, torch.bfloat16),
        (4, 32, 8, 128, torch.float32),
    ):
        keys, values = (empty(64, kv_heads, 16, size, dtype=cache if dtype.itemsize == 2 else dtype) for _ in "kv")
        tables, places = torch.zeros(4, 64, dtype=torch.int32), torch.zeros(rows, dtype=torch.int32)
        qkv, out = empty(rows, (heads + 2 * kv_heads) * size, dtype=dtype), empty(rows, heads * size, dtype=dtype)
        cosines, scratch = empty(64, size, dtype=torch.float32), DecodeScratch(rows, heads, size, 8, CPU)
        what = f"{rows} rows, {heads} and {kv_heads} heads of {size}, {dtype} over {cache}"
        yield (
            f"decode {what}",
            lambda q=qkv, k=keys, v=values, t=tables, p=places, c=cosines, o=out, s=scratch, h=heads: decode_attention(
                q, k, v, t, p, p, c, o, s, heads=h, scale=0.1, splits=8
            ),
        )
        tiles = torch.zeros(1, 4, dtype=torch.int32)
        for tile in (64, 32, 16):
            yield (
                f"chunk in tiles of {tile}, {what}",
                lambda q=qkv, k=keys, v=values, t=tables, n=tiles, o=out, h=heads, r=tile: chunk_attention(
                    q, k, v, t, n, o, heads=h, scale=0.1, tile_rows=r
                ),
            )


def draws() -> Iterator[Launch]:
    from trireme.llm.kernels import drawing

    values, numbers = empty(4, 32000, dtype=torch.float32), empty(4, 7, dtype=torch.float64)
    keys, bits = torch.zeros(4, 7, dtype=torch.int64), torch.zeros(4, 4000, dtype=torch.uint8)
    yield "a bound of grammars", lambda: drawing.forbid(values, keys[:, 0].contiguous(), bits)
    for floors in (None, numbers[:, 5:6]):
        yield f"draw, {floors is not None}", lambda f=floors: drawing.draw(values, keys[:, 2:3], numbers[:, 4:5], f)
    parts = [numbers[:, column : column + 1] for column in range(3)]
    yield "mass of what is kept", lambda: drawing.mass(values, *parts)
    yield "share of probability", lambda: drawing.top_p_floor(values, *parts)


def main() -> None:
    major, _, minor = sys.argv[1].partition(".")
    capability = int(major), int(minor)
    compiled = stand_for(capability)
    layers = [*products(), *packed_products(), *attention(torch.bfloat16)]
    if capability >= (8, 9):
        layers += attention(torch.float8_e4m3fn)
    found = {}
    for part, launches in (("layers", layers), ("draws", draws())):
        for name, launch in launches:
            launch()
            kernel = compiled[-1]
            waits = "griddepcontrol" in kernel.asm["ptx"]
            found[name] = {"part": part, "shared": kernel.metadata.shared, "waits": waits}
    print(json.dumps({"limit": SHARED_BYTES[capability], "launches": found}))


if __name__ == "__main__":
    main()
