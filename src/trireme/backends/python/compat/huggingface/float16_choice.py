"""In which type the CPU is to compute a model of float16: in another that it is faster with, where memory allows it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from trireme.core.cpu_arithmetic import emulates
from trireme.core.host_memory import free_host_bytes

VARIABLE = "TRIREME_CPU_FLOAT16"
"""The type that is to be taken, whatever is faster: float16 keeps the model as it is."""
_NAMES = ("float16", "float32", "bfloat16")
_ROOM = 3  # times the weights: twice them for float32, and as much as they are now for what else is to come


@dataclass(frozen=True, slots=True)
class Choice:
    """What is best."""

    name: str
    """Of the type."""
    reason: str
    """A clause about float16; empty where there is nothing to tell."""


def choose(size_bytes: int) -> Choice:
    """For a model with so many bytes of float16. Float32 has all values of float16; bfloat16 takes no more memory
    than float16, and rounds more coarsely."""
    wanted = os.environ.get(VARIABLE, "").strip()
    if wanted in _NAMES:
        return Choice(wanted, "" if wanted == "float16" else f"and {VARIABLE} says {wanted}")
    if not emulates("float16"):
        return Choice("float16", "")
    how_slow = "with which this processor takes many times as long as with float32"
    if wanted:
        how_slow += f" ({VARIABLE} '{wanted}' is none of {', '.join(_NAMES)})"
    needed, free = _ROOM * size_bytes, free_host_bytes()
    if free is None or free >= needed:
        return Choice("float32", how_slow)
    short = f"{how_slow} (for which {needed / 1e9:.1f} GB of memory should be free, and {free / 1e9:.1f} GB are)"
    return Choice("float16" if emulates("bfloat16") else "bfloat16", short)
