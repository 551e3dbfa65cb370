"""`device_map` without accelerate: left out where it means nothing, refused by the library elsewhere, or one device."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from trireme.backends.python.compat.huggingface import device_map


@pytest.fixture
def _no_accelerate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "accelerate", None)  # which find_spec reads as missing


def settled(monkeypatch: pytest.MonkeyPatch, worker: str, wanted: Any, compat: str = "") -> tuple[str | None, bool]:
    """Where the model is to be moved, and whether the argument is left for the library."""
    monkeypatch.setenv("TRIREME_DEVICE", worker)
    monkeypatch.setenv("TRIREME_COMPAT", compat)
    kwargs = {"device_map": wanted, "revision": "main"}
    device = device_map.settle(kwargs)
    assert kwargs.pop("revision") == "main"
    return device, "device_map" in kwargs


def test_it_is_left_alone_where_accelerate_is_installed(monkeypatch: pytest.MonkeyPatch, told: set[str]) -> None:
    monkeypatch.setattr(device_map.importlib.util, "find_spec", lambda name: object())
    for word in ("", "device_map"):
        assert settled(monkeypatch, "cpu", "auto", word) == (None, True)
    assert told == set()


@pytest.mark.usefixtures("_no_accelerate")
@pytest.mark.parametrize("wanted", ["auto", "cpu", {"": "cpu"}, "balanced"])
def test_on_a_cpu_alone_it_is_left_out(
    monkeypatch: pytest.MonkeyPatch, told: set[str], capsys: pytest.CaptureFixture[str], wanted: Any
) -> None:
    for _ in range(2):
        assert settled(monkeypatch, "cpu", wanted) == (None, False)
    assert told == {"device_map"}
    warned = capsys.readouterr().err.splitlines()
    assert len(warned) == 1
    assert warned[0].endswith("(compat 'off' turns such rescues off)")


@pytest.mark.usefixtures("_no_accelerate")
@pytest.mark.parametrize(
    ("worker", "wanted"), [("cuda:0", "auto"), ("cpu", {"": "cuda:1"}), ("cuda:0", {"": 0}), ("hpu:0", "auto")]
)
def test_where_an_accelerator_is_meant_the_librarys_refusal_stands(
    monkeypatch: pytest.MonkeyPatch, told: set[str], capsys: pytest.CaptureFixture[str], worker: str, wanted: Any
) -> None:
    assert settled(monkeypatch, worker, wanted) == (None, True)
    assert "compat 'device_map' puts the whole model on '" in capsys.readouterr().err


@pytest.mark.usefixtures("_no_accelerate")
def test_with_rescues_off_it_is_refused_everywhere(monkeypatch: pytest.MonkeyPatch, told: set[str]) -> None:
    assert settled(monkeypatch, "cpu", "auto", "off") == (None, True)
    assert told == set()


@pytest.mark.usefixtures("_no_accelerate", "told")
@pytest.mark.parametrize(
    ("worker", "wanted", "expected"),
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
def test_on_request_the_whole_model_goes_to_one_device(
    monkeypatch: pytest.MonkeyPatch, worker: str, wanted: Any, expected: str
) -> None:
    assert settled(monkeypatch, worker, wanted, "off,device_map") == (expected, False)


@pytest.mark.usefixtures("_no_accelerate", "told")
def test_the_pipeline_is_on_the_device_of_its_model_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("library")
    module.pipeline = lambda task, **kwargs: kwargs  # type: ignore[attr-defined]
    device_map.place_pipeline(module)
    monkeypatch.setenv("TRIREME_DEVICE", "cuda:1")
    assert module.pipeline("x", device_map="auto") == {"device_map": "auto"}
    monkeypatch.setenv("TRIREME_COMPAT", "device_map")
    assert module.pipeline("x", device_map="auto") == {"device": "cuda:1"}
