"""The built-in backends by name."""

from __future__ import annotations

from collections.abc import Mapping

from trireme.backends.builtin.backend import BuiltinBackend
from trireme.backends.builtin.identity import IdentityBackend
from trireme.backends.builtin.iterative_sequence import IterativeSequenceBackend
from trireme.backends.builtin.repeat import RepeatBackend
from trireme.backends.builtin.sequence import DynaSequenceBackend, SequenceBackend
from trireme.backends.builtin.square import SquareBackend

FACTORIES: Mapping[str, type[BuiltinBackend]] = {
    "identity": IdentityBackend,
    "repeat": RepeatBackend,
    "square": SquareBackend,
    "sequence": SequenceBackend,
    "dyna_sequence": DynaSequenceBackend,
    "iterative_sequence": IterativeSequenceBackend,
}
