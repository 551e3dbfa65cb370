"""Parameters that were probably meant as inputs are told of, and remembered within bounds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from trireme.core.request import InferenceRequest
from trireme.server.text_models.mistaken_names import MistakenNames

MODEL: Any = SimpleNamespace(
    name="writer", config=SimpleNamespace(inputs={"temperature": SimpleNamespace(is_optional=True)})
)


def asked(*names: str) -> InferenceRequest:
    request = InferenceRequest("writer", "", "", {}, lambda response: None)
    request.parameters = dict.fromkeys(names, 1)
    return request


def test_a_name_close_to_an_optional_input_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    names = MistakenNames()
    for _ in range(2):
        names.look_at(MODEL, asked("temprature", "seed"))
    assert caplog.text.count("was its input 'temperature' meant?") == 1


def test_what_clients_call_things_is_not_kept_without_bound() -> None:
    names = MistakenNames()
    names.look_at(MODEL, asked("x" * 1_000_000, *(f"x{number}" for number in range(5000))))
    assert len(names._seen) <= 1024
    assert max(len(name) for _, name in names._seen) <= 100
