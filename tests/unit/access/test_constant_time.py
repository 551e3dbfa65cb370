"""Where what a client sends is compared with a secret: in constant time, and in no other way."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import trireme

SECRETS = {"credential", "digest", "found", "given", "secret", "value"}
"""What the functions below call that which nobody may learn by measuring."""
SOURCES = Path(inspect.getfile(trireme)).parent


@pytest.mark.parametrize(
    ("file", "function"),
    [
        ("access/key_ring.py", "find"),
        ("frontends/http/routing.py", "_has_header"),
        ("frontends/grpc/plan.py", "_has"),
    ],
)
def test_a_secret_is_compared_in_constant_time(file: str, function: str) -> None:
    tree = ast.parse((SOURCES / file).read_text())
    (body,) = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == function]
    calls = [node.func for node in ast.walk(body) if isinstance(node, ast.Call)]
    names = [func.attr if isinstance(func, ast.Attribute) else func.id for func in calls if not is_odd(func)]
    assert names.count("compare_digest") == 1
    for compared in (node for node in ast.walk(body) if isinstance(node, ast.Compare)):
        if any(isinstance(operator, (ast.Eq, ast.NotEq, ast.In, ast.NotIn)) for operator in compared.ops):
            assert not SECRETS & {node.id for node in ast.walk(compared) if isinstance(node, ast.Name)}


def is_odd(func: ast.expr) -> bool:
    return not isinstance(func, (ast.Attribute, ast.Name))


def test_no_other_room_looks_at_secrets() -> None:
    users = {
        path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("*.py") if "compare_digest" in path.read_text()
    }
    assert users == {"access/key_ring.py", "frontends/grpc/plan.py", "frontends/http/routing.py"}
