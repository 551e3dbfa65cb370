"""In which type the CPU is to compute a model of float16: in another that it is faster with, where memory allows it."""

from __future__ import annotations

from dataclasses import dataclass

from trireme.backends.python.compat import switches
from trireme.machine.cpu_arithmetic import emulates
from trireme.machine.host_memory import free_host_bytes

WORD = "float16"
_FIXED = {"float16-as-float32": "float32", "float16-as-bfloat16": "bfloat16"}
WORDS = (WORD, *_FIXED)
_ROOM = 3  # times the weights: twice them for float32, and as much as they are now for what else is to come
SLOW = "with which this processor takes many times as long as with float32"


@dataclass(frozen=True, slots=True)
class Choice:
    """What is best."""

    name: str
    """Of the type."""
    reason: str
    """A clause about float16; empty where there is nothing to tell."""
    word: str = WORD
    """That asks for it."""


def choose(size_bytes: int) -> Choice:
    """For a model with so many bytes of float16. Float32 has all values of float16; bfloat16 takes no more memory
    than float16, and rounds more coarsely."""
    for word, name in _FIXED.items():
        if switches.is_asked_for(word):
            return Choice(name, "which the CPU is not to compute", word)
    if not emulates("float16"):
        return Choice("float16", "")
    needed, free = _ROOM * size_bytes, free_host_bytes()
    if free is None or free >= needed:
        return Choice("float32", SLOW)
    short = f"{SLOW} (for which {needed / 1e9:.1f} GB of memory should be free, and {free / 1e9:.1f} GB are)"
    return Choice("float16" if emulates("bfloat16") else "bfloat16", short)
