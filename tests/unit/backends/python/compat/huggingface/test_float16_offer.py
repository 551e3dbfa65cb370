"""What is told of a model of float16 that nobody asked to convert."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from trireme.backends.python.compat.huggingface import float16


def test_a_slow_model_of_float16_is_told_with_the_flag_that_makes_it_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    half = object()
    torch = SimpleNamespace(float16=half, cuda=SimpleNamespace(is_available=lambda: False))
    weight = SimpleNamespace(dtype=half, device=SimpleNamespace(type="cpu"))
    offers: list[str] = []
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(float16, "emulates", lambda name: True)
    monkeypatch.setattr(float16, "device_of_worker", lambda: float16.CPU)
    monkeypatch.setattr(float16, "tell_offer", lambda kind, text: offers.append(text))
    model: Any = SimpleNamespace(parameters=lambda: [weight])
    float16._settle(model, type(model), None)
    (told,) = offers
    assert told.startswith("SimpleNamespace was loaded in float16, ")
    assert "; --compat=float16, or the parameter 'compat' with 'float16' in its config.pbtxt, computes it" in told
