"""Assertions that are rewritten in less time say the same."""

from __future__ import annotations

import ast
import marshal
from pathlib import Path

import pytest
import rewritten_assertions
from _pytest.assertion import rewrite

EVERY_KIND = """
def test(a, b, call):
    assert a
    assert a == b, f"{a} is not {b!r:>{a}}"
    assert (
        call(a, *b, key=[b for b in a], **{"c": lambda d: d})
        not in (a[1:2].b, -a, not b, a @ b % 2)
    )
    assert a < b <= 3 and (c := call(b)) is not None or c, (
        "a text over",
        "two lines",
    )
"""


@pytest.fixture
def pytests_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest as it is without this folder's help."""

    def traverse_node(node: ast.AST) -> list[ast.AST]:
        return [node, *(below for child in ast.iter_child_nodes(node) for below in traverse_node(child))]

    assert rewritten_assertions.is_installed()
    monkeypatch.setattr(rewrite, rewritten_assertions.WALK, traverse_node)
    own = rewritten_assertions.VISIT_OF_PYTEST
    monkeypatch.setattr(rewrite.AssertionRewriter, rewritten_assertions.VISIT, own)


def rewritten(source: str) -> bytes:
    tree = ast.parse(source)
    rewrite.rewrite_asserts(tree, source.encode())
    return (
        marshal.dumps(compile(tree, "test.py", "exec", dont_inherit=True))
        + ast.dump(tree, include_attributes=True).encode()
    )


@pytest.mark.parametrize("source", [EVERY_KIND, Path(__file__).read_text()], ids=["every kind", "this file"])
def test_modules_are_compiled_to_the_same_bytes(source: str, request: pytest.FixtureRequest) -> None:
    ours = rewritten(source)
    assert b"@py_assert" in ours
    request.getfixturevalue("pytests_own")
    assert rewritten(source) == ours
