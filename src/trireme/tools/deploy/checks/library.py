"""What is installed to run models with, told from the packages' files: the server's process never imports them."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_AUTO = ("models/auto/auto_mappings.py", "models/auto/configuration_auto.py", "models/auto/modeling_auto.py")
"""Where transformers lists which of its classes are for which architecture; not every release has the first."""
_TYPES = "CONFIG_MAPPING_NAMES"
_VERSION = re.compile(r"^__version__\s*=\s*['\"]([^'\"]+)", re.MULTILINE)
_WITHOUT_GPU = re.compile(r"^cuda\b[^=]*=\s*None\s*$", re.MULTILINE)
_WITHOUT_ROCM = re.compile(r"^hip\b[^=]*=\s*None\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Library:
    """The transformers package that a worker will import."""

    version: str
    configs: Mapping[str, str] = field(default_factory=dict)
    """By `model_type`, the class of its configuration; empty where it cannot be told."""
    classes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By auto class, such as AutoModelForCausalLM: its class for each `model_type`."""

    def knows(self, model_type: str) -> bool | None:
        """Whether it has this architecture; None where that cannot be told."""
        return model_type in self.configs if self.configs else None

    def class_for(self, auto_class: str, model_type: str) -> str | None:
        """The class that an auto class makes; None where it has none, or does not tell."""
        own = self.classes.get(auto_class, {})
        config = self.configs.get(model_type)
        twins = (name for name, other in self.configs.items() if other == config and name in own)
        return own.get(model_type) or next((own[name] for name in twins), None)


def installed_library(folder: Path | None = None) -> Library | None:
    """The package of this interpreter, or in this folder; None where there is none."""
    folder = folder or package_folder("transformers")
    if folder is None:
        return None
    found = _VERSION.search(_text(folder / "__init__.py"))
    tables: dict[str, dict[str, str]] = {}
    mappings: dict[str, str] = {}
    classes: dict[str, Mapping[str, str]] = {}
    for name in _AUTO:
        for statement in _statements(folder / name):
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                _read_table(statement.targets[0].id, statement.value, tables, mappings)
            elif isinstance(statement, ast.ClassDef):
                table = mappings.get(_model_mapping(statement), "")
                if tables.get(table):
                    classes[statement.name.lstrip("_")] = tables[table]
    return Library(found[1] if found else "", tables.get(_TYPES, {}), classes)


def package_folder(name: str) -> Path | None:
    """Where a package of this interpreter is; None where it is not installed."""
    spec = importlib.util.find_spec(name)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(places[0]) if places else None


def is_torch_without_gpu(folder: Path | None = None) -> bool:
    """Whether the installed PyTorch was built for CPUs alone."""
    folder = folder or package_folder("torch")
    text = "" if folder is None else _text(folder / "version.py")
    return _WITHOUT_GPU.search(text) is not None and (_WITHOUT_ROCM.search(text) is not None or "hip" not in text)


def _read_table(name: str, value: ast.expr, tables: dict[str, dict[str, str]], mappings: dict[str, str]) -> None:
    """`X_NAMES = OrderedDict([("opt", "OPTForCausalLM"), ...])`, or `X = _LazyAutoMapping(CONFIG_..., X_NAMES)`."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "_LazyAutoMapping":
        if isinstance(value.args[-1], ast.Name):
            mappings[name] = value.args[-1].id
        return
    pairs: dict[str, str] = {}
    for node in ast.walk(value):
        if isinstance(node, ast.Name):
            pairs |= tables.get(node.id, {})
        elif isinstance(node, ast.Tuple) and len(node.elts) == 2:
            _add_pair(pairs, node.elts[0], node.elts[1])
        elif isinstance(node, ast.Dict):
            for key, entry in zip(node.keys, node.values, strict=True):
                _add_pair(pairs, key, entry)
    if pairs:
        tables[name] = pairs


def _add_pair(pairs: dict[str, str], key: ast.expr | None, value: ast.expr) -> None:
    if isinstance(value, ast.Tuple) and value.elts:  # several classes, the usual one first
        value = value.elts[0]
    if isinstance(key, ast.Constant) and isinstance(value, ast.Constant):
        pairs.setdefault(str(key.value), str(value.value))


def _model_mapping(definition: ast.ClassDef) -> str:
    for statement in definition.body:
        if (
            isinstance(statement, ast.Assign)
            and isinstance(statement.targets[0], ast.Name)
            and statement.targets[0].id == "_model_mapping"
            and isinstance(statement.value, ast.Name)
        ):
            return statement.value.id
    return ""


def _statements(file: Path) -> list[ast.stmt]:
    try:
        return ast.parse(_text(file)).body
    except (SyntaxError, ValueError):
        return []


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
