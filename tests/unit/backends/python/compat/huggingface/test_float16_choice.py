"""The type that a CPU computes models of float16 in."""

from __future__ import annotations

import pytest

from trireme.backends.python.compat.huggingface import float16_choice
from trireme.backends.python.compat.huggingface.float16_choice import choose

GB = 10**9


@pytest.fixture(autouse=True)
def _slow_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIREME_COMPAT", "float16")
    have(monkeypatch, native=set(), free_bytes=30 * GB)


def have(monkeypatch: pytest.MonkeyPatch, native: set[str], free_bytes: int | None) -> None:
    monkeypatch.setattr(float16_choice, "emulates", lambda name: name not in native)
    monkeypatch.setattr(float16_choice, "free_host_bytes", lambda: free_bytes)


def test_float32_where_float16_is_slow_and_memory_allows_it() -> None:
    choice = choose(10 * GB)
    assert choice.name == "float32"
    assert "many times as long" in choice.reason


def test_float32_where_nobody_knows_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, set(), None)
    assert choose(10 * GB).name == "float32"


def test_nothing_is_changed_or_told_where_float16_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, {"float16"}, 30 * GB)
    assert choose(GB) == float16_choice.Choice("float16", "")


@pytest.mark.parametrize(("native", "expected"), [(set(), "float16"), ({"bfloat16"}, "bfloat16")])
def test_with_too_little_memory_it_is_a_type_of_the_same_size(
    monkeypatch: pytest.MonkeyPatch, native: set[str], expected: str
) -> None:
    have(monkeypatch, native, 30 * GB)
    choice = choose(11 * GB)
    assert choice.name == expected
    assert "33.0 GB of memory should be free, and 30.0 GB are" in choice.reason


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_a_word_decides_whatever_is_faster(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    have(monkeypatch, {"float16"}, 30 * GB)
    monkeypatch.setenv("TRIREME_COMPAT", f"float16-as-{name}")
    assert choose(1000 * GB) == float16_choice.Choice(name, "which the CPU is not to compute", f"float16-as-{name}")
