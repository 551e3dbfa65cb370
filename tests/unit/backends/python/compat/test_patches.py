"""The list of patches: each by itself rescues or offers, and what changes things has a word that the server knows."""

from __future__ import annotations

import pytest

from trireme.backends.python.compat import patches
from trireme.config.compat_words import MEANINGS


def names(*, of: str = "") -> set[str]:
    modules = {patch.module for patch in patches.PATCHES}
    return {patch.apply.__name__ for module in modules if module.startswith(of) for patch in patches.wanted_for(module)}


def test_every_word_of_a_patch_is_one_of_the_servers() -> None:
    assert {word for patch in patches.PATCHES for word in patch.words} <= MEANINGS.keys()


def test_nothing_is_patched_where_rescues_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIREME_COMPAT", "off")
    assert names() == set()
    monkeypatch.setenv("TRIREME_COMPAT", "off, lengths")
    assert names() == {"respect_max_length"}


def test_what_only_changes_things_is_there_on_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIREME_COMPAT", "")
    assert "look_there_too" not in names(of="huggingface_hub")
    monkeypatch.setenv("TRIREME_COMPAT", "cache")
    assert "look_there_too" in names(of="huggingface_hub")
