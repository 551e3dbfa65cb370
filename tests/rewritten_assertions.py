"""Lets pytest rewrite the assertions of all modules in half of the time, for which a run in a clean clone waits.

An assertion becomes some hundred nodes of a syntax tree, and pytest goes through each of them, with a generator inside
of a generator, to give those that it has made the place of the assertion in the file, which it looks up for each. One
loop gives it to them here, and passes over those that cannot have a place. What is compiled in the end is the same,
byte by byte.
"""

from __future__ import annotations

import ast

from _pytest.assertion import rewrite

WALK = "traverse_node"
"""pytest's own function, which nothing but that uses."""
VISIT = "visit_Assert"
"""The method of pytest's rewriter that goes this way, once for each assertion."""


class Placing:
    """Where the assertion stands that is being rewritten, and what gives this place to the nodes made for it."""

    def __init__(self) -> None:
        self._place = (1, 0, 1, 0)

    def visit(self, rewriter: rewrite.AssertionRewriter, assertion: ast.Assert) -> list[ast.stmt]:
        end = assertion.end_lineno or assertion.lineno, assertion.end_col_offset or 0
        self._place = (assertion.lineno, assertion.col_offset, *end)
        return VISIT_OF_PYTEST(rewriter, assertion)

    def walk(self, node: ast.AST) -> tuple[()]:
        """Gives the place to the node and all below it, as far as they have none and can have one, and leaves nothing
        to do for who asks for the nodes."""
        place, left = self._place, [node]
        while left:
            node = left.pop()
            values = vars(node)
            if node._attributes and values.get("lineno") is None:
                values["lineno"], values["col_offset"], values["end_lineno"], values["end_col_offset"] = place
            for name in node._fields:
                value = values.get(name)
                if isinstance(value, ast.AST):
                    left.append(value)
                elif isinstance(value, list):
                    left += [entry for entry in value if isinstance(entry, ast.AST)]
        return ()


_PLACING = Placing()
VISIT_OF_PYTEST = getattr(rewrite.AssertionRewriter, VISIT, None)


def install() -> None:
    """Where this pytest has both."""
    if hasattr(rewrite, WALK) and VISIT_OF_PYTEST is not None:
        setattr(rewrite, WALK, _PLACING.walk)
        setattr(rewrite.AssertionRewriter, VISIT, lambda rewriter, assertion: _PLACING.visit(rewriter, assertion))


def is_installed() -> bool:
    return vars(rewrite).get(WALK) == _PLACING.walk
