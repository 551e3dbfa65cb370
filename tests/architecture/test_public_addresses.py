"""Files of users import from few addresses, which examples, documentation and generated files keep to."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from trireme.tools.neuron_model.generate import PYTHON_MODEL

PUBLIC = {"trireme.plugins", "trireme.llm", "trireme.models", "trireme.testing"}
SHOWN = ("examples/**/*.py", "examples/**/*.md", "docs/*.md", "README.md")
WRITTEN = ("src/trireme/tools/**/*.template", "src/trireme/tools/deploy/folder/*.txt")
_IMPORT = re.compile(r"^\s*(?:from|import) (trireme[\w.]*)", re.MULTILINE)

OLD = {
    "trireme.backends.text_prompts": ("TritonPythonModel", "trireme.models", "TextPromptModel"),
    "trireme.backends.gaudi.causal_lm": ("CausalLanguageModel", "trireme.models", "CausalLanguageModel"),
    "trireme.backends.neuron.model": ("TritonPythonModel", "trireme.models", "NeuronModel"),
    "trireme.core.ports": ("Backend", "trireme.plugins", "Backend"),
    "trireme.backends.python.host.backend": ("PythonBackend", "trireme.plugins", "PythonBackend"),
}
"""Addresses that files of users have from before."""


def test_what_users_copy_imports_from_public_addresses(root: Path) -> None:
    files = {file for pattern in (*SHOWN, *WRITTEN) for file in root.glob(pattern)}
    texts = {str(file.relative_to(root)): file.read_text(encoding="utf-8") for file in files}
    texts["neuron-model"] = PYTHON_MODEL
    found = {(name, address) for name, text in texts.items() for address in _IMPORT.findall(text)}
    assert sorted(entry for entry in found if entry[1] not in PUBLIC) == []
    assert {address for _, address in found} == {"trireme.llm", "trireme.models", "trireme.testing"}


@pytest.mark.parametrize("address", sorted(PUBLIC))
def test_a_public_address_has_every_name_that_it_promises(address: str) -> None:
    module = importlib.import_module(address)
    assert all(getattr(module, name) is not None for name in module.__all__)
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = module.Nothing


@pytest.mark.parametrize("old", sorted(OLD))
def test_an_address_from_before_still_works(old: str) -> None:
    name, address, new_name = OLD[old]
    assert getattr(importlib.import_module(old), name) is getattr(importlib.import_module(address), new_name)
