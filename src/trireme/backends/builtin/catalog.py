"""The built-in backends by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trireme.backends.builtin.identity import IdentityBackend
from trireme.backends.builtin.iterative_sequence import IterativeSequenceBackend
from trireme.backends.builtin.repeat import RepeatBackend
from trireme.backends.builtin.sequence import DynaSequenceBackend, SequenceBackend
from trireme.backends.builtin.square import SquareBackend
from trireme.backends.services import BackendServices, ModelSource
from trireme.core.ports import Backend

FACTORIES: Mapping[str, Callable[[ModelSource, BackendServices], Backend]] = {
    "identity": IdentityBackend,
    "repeat": RepeatBackend,
    "square": SquareBackend,
    "sequence": SequenceBackend,
    "dyna_sequence": DynaSequenceBackend,
    "iterative_sequence": IterativeSequenceBackend,
}
