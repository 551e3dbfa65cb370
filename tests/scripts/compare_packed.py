#!/usr/bin/env python3
"""Holds our reading of compressed-tensors' packed words against the package that packs them, in the release installed.

compare_packed.py

Where the package is installed, it packs random numbers of one to eight bits, with zeros packed beside them, and we unpack
them; one line for each number of bits, and 1 as exit code where a number differs. Releases up to 0.12 pack otherwise than
0.20: run it with one of each.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from typing import Any

import numpy as np
import torch

from trireme.llm.models.checkpoint import Weight, to_float32
from trireme.llm.models.quantized_formats.compressed_tensors import CompressedTensorsFormat

PLACES = ("compressors.pack_quantized.helpers", "compressors.quantized_compressors.pack_quantized")
ROWS, COLUMNS = 96, 320


def packer() -> Any:
    """The package's own function, where this release keeps it."""
    for place in PLACES:
        try:
            return importlib.import_module(f"compressed_tensors.{place}").pack_to_int32
        except ModuleNotFoundError as error:
            if error.name and not f"compressed_tensors.{place}".startswith(error.name):
                raise
    raise SystemExit("this release of compressed-tensors keeps pack_to_int32 elsewhere")


def is_equal(pack: Any, bits: int) -> bool:
    """Whether we read what the package wrote."""
    drawn = torch.Generator().manual_seed(bits)
    lowest, highest = -(2 ** (bits - 1)), 2 ** (bits - 1)
    codes = torch.randint(lowest, highest, (ROWS, COLUMNS), generator=drawn).to(torch.int8)
    zeros = torch.randint(lowest, highest, (ROWS, 1), generator=drawn).to(torch.int8)
    parts = {
        "m.weight_packed": Weight(pack(codes, bits).contiguous().numpy(), "I32"),
        "m.weight_zero_point": Weight(pack(zeros, bits, packed_dim=0).contiguous().numpy(), "I32"),
        "m.weight_shape": Weight(np.array([ROWS, COLUMNS]), "I64"),
        "m.weight_scale": Weight(np.ones((ROWS, 1), np.float32), "F32"),
    }
    settings = {"format": "pack-quantized", "config_groups": {"group": {"weights": {"num_bits": bits, "type": "int"}}}}
    found = to_float32(CompressedTensorsFormat(settings).read("m", parts.__getitem__, frozenset(parts)))
    return bool(np.array_equal(found, (codes.float() - zeros.float()).numpy()))


def main() -> int:
    pack, version = packer(), importlib.metadata.version("compressed-tensors")
    results = {bits: is_equal(pack, bits) for bits in range(1, 9)}
    for bits, same in results.items():
        print(f"compressed-tensors {version}, {bits} bits: {'equal' if same else 'DIFFERENT'}")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
