"""Models by their names on a machine without a network, and on one with a hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny_models
from meanwhile import serving
from small_hub import COMMIT, Hub, closed_port

PROGRAM = Path(__file__).with_name("hub_calls.py")
SOURCE = Path(__file__).parents[3] / "src"
NAME = "someone/tiny-model"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A cache that somebody has copied: the files of one repository, and nothing about those that it has not."""
    repository = tmp_path / "hub" / f"models--{NAME.replace('/', '--')}"
    tiny_models.tiny_causal_lm(repository / "snapshots" / COMMIT, "llama")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    return tmp_path


def load(home: Path, endpoint: str, *what: str, **variables: str) -> tuple[dict[str, Any], list[str]]:
    """What came of loading each, and the warnings about the hub."""
    path = os.pathsep.join(filter(None, (str(SOURCE), os.environ.get("PYTHONPATH"))))
    unset = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "TRANSFORMERS_CACHE")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"HF_HOME": str(home), "HF_ENDPOINT": endpoint, "NO_PROXY": "*", "PYTHONPATH": path, **variables}
    done = subprocess.run([sys.executable, str(PROGRAM), *what], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("W ") and "the hub '" in line]
    return json.loads(done.stdout.splitlines()[-1]), told


def test_what_is_in_the_cache_comes_from_there_at_once(home: Path) -> None:
    endpoint = f"http://127.0.0.1:{closed_port()}"
    made, told = load(home, endpoint, "tokenizer", NAME, "nobody/nothing", HF_HUB_ETAG_TIMEOUT="2")
    assert isinstance(made[NAME], int), made
    assert made[f"{NAME} took"] < 30  # the library's own attempts take minutes
    assert made["nobody/nothing"].startswith(f"OSError: We couldn't connect to '{endpoint}'")
    assert made["nobody/nothing took"] < 10
    (warning,) = told
    assert f"the hub '{endpoint}' could not be reached (ConnectionRefusedError" in warning
    assert "files come from the cache alone" in warning
    assert "HF_HUB_OFFLINE=1 spares the look" in warning
    assert warning.endswith("(compat 'off' turns such rescues off)")


def test_a_model_that_asks_for_nothing_causes_no_look(home: Path) -> None:
    with serving(Hub()) as hub:
        made, told = load(home, hub.url, "tokenizer", str(tiny_models.cached("llama")))
        assert all(isinstance(value, int | float) for value in made.values()), made
        made, _ = load(home, hub.url, "file", NAME, HF_HUB_OFFLINE="1")
        assert made[NAME].endswith("config.json")
        assert hub.asked == []
    assert told == []


def test_a_hub_that_is_there_is_asked_after_one_look(tmp_path: Path) -> None:
    with serving(Hub(tiny_models.cached("llama"))) as hub:
        made, told = load(tmp_path, hub.url, "file", NAME, "nobody/nothing")
        assert made[NAME].startswith(str(tmp_path)), made
        assert "HEAD /nobody/nothing/resolve/main/config.json" in hub.asked
        assert hub.asked.count("HEAD /") == 1
        assert f"GET /{NAME}/resolve/main/config.json" in hub.asked
    assert told == []


def test_nothing_is_looked_at_where_it_is_turned_off(home: Path) -> None:
    with serving(Hub(tiny_models.cached("llama"))) as hub:
        made, _ = load(home, hub.url, "file", NAME, TRIREME_COMPAT="off")
        assert made[NAME].endswith("config.json")
        assert hub.asked
        assert "HEAD /" not in hub.asked


def test_a_language_model_is_not_said_to_be_kept_off_the_network_by_its_user(tmp_path: Path) -> None:
    endpoint = f"http://127.0.0.1:{closed_port()}"
    made, _ = load(tmp_path, endpoint, "folder", NAME, HF_HUB_ETAG_TIMEOUT="2")
    assert f"could not be had: the hub '{endpoint}' could not be reached (ConnectionRefusedError" in made[NAME]
    assert "HF_HUB_OFFLINE" not in made[NAME]
    made, _ = load(tmp_path, endpoint, "folder", NAME, HF_HUB_OFFLINE="1")
    assert "HF_HUB_OFFLINE" in made[NAME]
    assert "could not be reached" not in made[NAME]
    with serving(Hub()) as hub:
        made, _ = load(tmp_path, hub.url, "folder", NAME)
        assert "404" in made[NAME], made
