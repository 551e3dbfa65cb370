"""What transformers reads when it is imported is given to it, and only where it would read the same."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec
from pathlib import Path

import pytest
from transformers_listing import MODULE, GivenListings, read_once_per_path

READING = "def define_import_structure(module_path, prefix=None):\n    return {'read': (str(module_path), prefix)}\n"


def test_a_listing_is_given_for_its_own_arguments_alone(tmp_path: Path) -> None:
    (tmp_path / "import_utils.py").write_text(READING)
    given = {"given": None}
    spec = GivenListings({(str(tmp_path), "models"): given}).find_spec(MODULE, [str(tmp_path)])
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.define_import_structure(tmp_path, prefix="models") is given
    assert module.define_import_structure(tmp_path) == {"read": (str(tmp_path), None)}
    assert GivenListings({}).find_spec("transformers.utils", [str(tmp_path)]) is None


def test_packages_are_read_again_where_the_path_has_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readings: list[int] = []

    def read() -> dict[str, list[str]]:
        readings.append(1)
        return {}

    packages = read_once_per_path(read)
    packages()
    monkeypatch.syspath_prepend(tmp_path)
    packages()
    assert len(readings) == 1
    (tmp_path / "more-1.0.dist-info").mkdir()
    packages()
    assert len(readings) == 2
    assert str(tmp_path) in sys.path
