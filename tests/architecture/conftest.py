"""The source files as the architecture tests look at them: parsed, with what each of them imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

_DOTTED_NAME = re.compile(r"trireme(\.[a-z_0-9]+)+")

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"


@dataclass(frozen=True)
class Module:
    """One source file of the package."""

    path: Path

    @cached_property
    def name(self) -> str:
        parts = self.path.relative_to(SOURCE).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def room(self) -> str:
        """`core` for `trireme.core.tensor`, "" for the package itself."""
        return self.name.partition(".")[2].partition(".")[0]

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        return [node for node in self.nodes if isinstance(node, ast.ClassDef)]

    @cached_property
    def imports(self) -> frozenset[str]:
        """Absolute dotted names, wherever in the file they are imported; `from a import b` counts as `a.b`."""
        return self._imported_in(self.nodes)

    @cached_property
    def imports_for_types(self) -> frozenset[str]:
        """Those of them that only the type checker follows: under `if TYPE_CHECKING:`."""
        guarded = [
            inner
            for node in self.nodes
            if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
            for statement in node.body
            for inner in ast.walk(statement)
        ]
        return self._imported_in(guarded)

    @cached_property
    def named_modules(self) -> frozenset[str]:
        """What strings name that are nothing else than dotted names of the package: what is imported, or run, late."""
        texts = (node.value for node in self.nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
        return frozenset(text for text in texts if _DOTTED_NAME.fullmatch(text))

    def _imported_in(self, nodes: Iterable[ast.AST]) -> frozenset[str]:
        found: set[str] = set()
        for node in nodes:
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = self._base_of(node)
                found.update(f"{base}.{alias.name}" for alias in node.names)
        return frozenset(found)

    def _base_of(self, node: ast.ImportFrom) -> str:
        if node.level == 0:
            return node.module or ""
        package = self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]
        for _ in range(node.level - 1):
            package = package.rpartition(".")[0]
        return f"{package}.{node.module}" if node.module else package


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def modules() -> dict[str, Module]:
    """Every module of the package by its dotted name; generated files are left out."""
    paths = [path for path in sorted((SOURCE / "trireme").rglob("*.py")) if not path.name.endswith("_pb2.py")]
    return {module.name: module for module in map(Module, paths)}


@pytest.fixture(scope="session")
def source_files(modules: dict[str, Module]) -> list[Module]:
    """The modules of the package and what lies beside it."""
    return [*modules.values(), *map(Module, SOURCE.glob("triton_python_backend_utils/*.py"))]


def within_package(names: Iterable[str], modules: dict[str, Module]) -> frozenset[str]:
    """The modules of the package among imported names."""

    def resolve(name: str) -> str:
        while name not in modules:
            name = name.rpartition(".")[0]
        return name

    return frozenset(resolve(name) for name in names if name.split(".")[0] == "trireme")


@pytest.fixture(scope="session")
def internal_imports(modules: dict[str, Module]) -> dict[str, frozenset[str]]:
    """For each module the modules of the package that it loads."""
    return {
        name: within_package(module.imports - module.imports_for_types, modules) - {name}
        for name, module in modules.items()
    }


@pytest.fixture(scope="session")
def type_imports(modules: dict[str, Module]) -> dict[str, frozenset[str]]:
    """For each module the modules of the package that it names for the type checker only."""
    return {name: within_package(module.imports_for_types, modules) - {name} for name, module in modules.items()}


@pytest.fixture(scope="session")
def all_imports(modules: dict[str, Module]) -> dict[str, frozenset[str]]:
    """For each module the modules of the package that it names, be it for the type checker only."""
    return {name: within_package(module.imports, modules) - {name} for name, module in modules.items()}
