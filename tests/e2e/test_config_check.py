"""`trireme config check` and the server agree on which model folders can be served, whatever is wrong with them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from broken_models import MODELS
from running_server import RunningServer


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("broken") / "model_repository"
    for name, model in MODELS.items():
        model.write(folder / name)
    return folder


@pytest.fixture(scope="module")
def served(repository: Path) -> Iterator[dict[str, dict[str, str]]]:
    """What the server says of each model."""
    with RunningServer(repository.parent, "--exit-on-error=false") as server:
        server.wait_until_listening()
        yield server.index()


@pytest.fixture(scope="module")
def checked(repository: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trireme", "config", "check", str(repository)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", MODELS)
def test_check_and_server_agree(
    name: str, served: dict[str, dict[str, str]], checked: subprocess.CompletedProcess[str]
) -> None:
    is_served = served.get(name, {}).get("state") == "READY"
    is_ok = re.search(rf"^{name}: ok", checked.stdout, re.MULTILINE) is not None
    found = re.findall(rf"^{name}: (.*)", checked.stderr, re.MULTILINE)
    assert is_ok != bool(found)
    assert is_served == (is_ok or MODELS[name].is_loaded), (served.get(name), found)
    assert is_ok == MODELS[name].is_right


def test_all_mistakes_are_told_in_one_run(checked: subprocess.CompletedProcess[str]) -> None:
    wrong = sum(not model.is_right for model in MODELS.values())
    assert checked.returncode == 1
    assert checked.stderr.splitlines()[-1].endswith(f" mistakes in {wrong} of {len(MODELS)} models")
    for name, model in MODELS.items():
        if model.config is not None and not model.is_right:
            assert re.search(rf"^{name}: /.*/{name}(/|\b)", checked.stderr, re.MULTILINE), name
