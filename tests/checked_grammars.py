"""Grammars that are checked in tests, with a vocabulary that is there at once."""

from __future__ import annotations

from pathlib import Path

from trireme.llm.grammar.sources import json_source

GOOD = json_source({"type": "object", "properties": {"name": {"type": "string"}}})
MULTIPLES = {"allOf": [{"type": "integer", "multipleOf": prime} for prime in (9973, 9967, 9949, 9941)]}
"""What takes minutes to compile, where it may."""


class Bytes:
    """A vocabulary of single bytes."""

    tokens = (*(bytes([byte]) for byte in range(256)), b"<end>")
    special_token_ids = (256,)
    bos_token_id = None
    eos_token_ids = (256,)


def children(pid: int | None) -> list[str]:
    """Those of the process, which has one thread."""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
