"""The place of the hub's cache is where the library itself looks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trireme.huggingface.hub_cache import folder_name, hub_cache

HOME = {"HOME": "/home/someone"}
VARIABLES: list[dict[str, str]] = [
    {},
    {"XDG_CACHE_HOME": "/var/cache"},
    {"XDG_CACHE_HOME": "/var/cache", "HF_HOME": "/data/hf"},
    {"HF_HOME": "~/hf"},
    {"HF_HOME": "/data/hf", "HUGGINGFACE_HUB_CACHE": "/old"},
    {"HUGGINGFACE_HUB_CACHE": "/old", "HF_HUB_CACHE": "~/new"},
]


def printed(program: str, environment: dict[str, str]) -> str:
    pytest.importorskip("huggingface_hub")
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("variables", VARIABLES)
def test_place_is_the_librarys(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(*next(iter(HOME.items())))
    program = "from huggingface_hub import constants; print(constants.HF_HUB_CACHE)"
    assert hub_cache(variables) == printed(program, {**HOME, **variables})


def test_empty_variable_says_nothing() -> None:
    assert hub_cache({"HF_HUB_CACHE": "", "HF_HOME": "/data/hf"}) == "/data/hf/hub"


def test_folder_of_a_model_is_the_librarys() -> None:
    called = "repo_folder_name(repo_id='a/b-c', repo_type='model')"
    program = f"from huggingface_hub.file_download import repo_folder_name; print({called})"
    assert printed(program, HOME) == folder_name("a/b-c")
