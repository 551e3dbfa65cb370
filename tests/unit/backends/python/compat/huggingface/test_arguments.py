"""Arguments by their present names, empty tokens, and device maps without accelerate."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from trireme.backends.python.compat.huggingface import arguments


@pytest.mark.parametrize(
    ("given", "expected", "kinds"),
    [
        ({"use_auth_token": "t"}, {"token": "t"}, {"use_auth_token"}),
        ({"use_auth_token": True}, {"token": True}, {"use_auth_token"}),
        ({"use_auth_token": None}, {}, {"use_auth_token"}),
        ({"use_auth_token": "old", "token": "new"}, {"token": "new"}, {"use_auth_token"}),
        ({"use_auth_token": ""}, {"token": None}, {"use_auth_token", "empty token"}),
        ({"token": " "}, {"token": None}, {"empty token"}),
        ({"token": False}, {"token": False}, set()),
        ({"token": "t", "revision": "main"}, {"token": "t", "revision": "main"}, set()),
    ],
)
def test_tokens_are_settled(told: set[str], given: dict[str, Any], expected: dict[str, Any], kinds: set[str]) -> None:
    arguments.settle_token(given)
    assert given == expected
    assert told == kinds


def test_a_device_map_is_left_alone_where_accelerate_is_installed(
    monkeypatch: pytest.MonkeyPatch, told: set[str]
) -> None:
    monkeypatch.setattr(arguments.importlib.util, "find_spec", lambda name: object())
    given = {"device_map": "auto"}
    assert arguments.take_device_map(given) is None
    assert given == {"device_map": "auto"}
    assert told == set()


@pytest.mark.parametrize(
    ("worker", "device_map", "expected"),
    [
        ("cpu", "auto", "cpu"),
        ("cuda:0", "auto", "cuda:0"),
        ("cuda:0", "cpu", "cpu"),
        ("cuda:0", {"": 0}, "cuda:0"),
        ("cpu", {"": "cuda:1"}, "cuda:1"),
        ("cuda:0", {"a": 0, "b": 1}, "cuda:0"),
        ("neuron:0-3", "balanced", "cpu"),
    ],
)
def test_without_accelerate_the_whole_model_goes_to_one_device(
    monkeypatch: pytest.MonkeyPatch, told: set[str], worker: str, device_map: Any, expected: str
) -> None:
    monkeypatch.setenv("TRIREME_DEVICE", worker)
    monkeypatch.setitem(sys.modules, "accelerate", None)  # which find_spec reads as missing
    given = {"device_map": device_map, "revision": "main"}
    assert arguments.take_device_map(given) == expected
    assert given == {"revision": "main"}
    assert told == {"device_map"}
