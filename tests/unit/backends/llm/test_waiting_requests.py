"""Requests wait for their adapters in their order, no more of them than may, and no longer than they may."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.llm.settings import Settings, read_settings
from trireme.backends.llm.waiting_requests import WaitingRequests
from trireme.llm.intake import EngineBusyError
from trireme.llm.sampling_params import SamplingError


class Sender:
    """Remembers what it was to send."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.is_gone = self.is_closed = False

    def is_cancelled(self) -> bool:
        return self.is_gone

    def has_credit(self) -> bool:
        return True

    def send(self, response: Any, flags: int) -> None:
        self.is_closed = True
        self.told.append(str(response.error().message()))


class Held:
    """Requests that wait behind one that holds the thread up."""

    def __init__(self, max_waiting: int) -> None:
        self.waiting: Any = WaitingRequests(max_waiting, "adapters to be read")
        self._released = threading.Event()
        reached = threading.Event()

        def hold() -> None:
            reached.set()
            self._released.wait(20)

        self.waiting.add(Sender(), hold)
        assert reached.wait(20)

    def go_on(self) -> None:
        self._released.set()
        self.waiting.stop()


def test_they_are_begun_one_after_another_and_one_too_many_is_refused() -> None:
    held, found = Held(2), list[int]()
    for number in range(2):
        held.waiting.add(Sender(), lambda number=number: found.append(number))
    with pytest.raises(EngineBusyError, match="2 requests wait for their adapters"):
        held.waiting.add(Sender(), lambda: None)
    held.go_on()
    assert found == [0, 1]


def test_those_that_wait_for_the_same_take_no_thread_from_others() -> None:
    waiting, found = WaitingRequests(0, "grammars to be compiled", 2), list[str]()
    is_made, other_is_made = threading.Event(), threading.Event()
    late = Sender()

    def make() -> None:
        is_made.wait(20)
        found.append("first")

    waiting.add(Sender(), make, None, "the same")  # type: ignore[arg-type]
    for name in ("second", "third"):
        waiting.add(Sender(), lambda name=name: found.append(name), None, "the same")  # type: ignore[arg-type, misc]
    waiting.add(late, lambda: found.append("late"), time.monotonic() - 1, "the same")  # type: ignore[arg-type]
    waiting.add(Sender(), other_is_made.set, None, "another")  # type: ignore[arg-type]
    assert other_is_made.wait(20)
    waiting.end_overdue()
    assert late.told == ["the request was ended: timeout"]
    assert not found
    is_made.set()
    waiting.stop()
    assert found == ["first", "second", "third"]


def test_one_that_has_left_leaves_the_making_to_the_next() -> None:
    held, found, gone = Held(0), list[str](), Sender()
    held.waiting.add(gone, lambda: found.append("gone"), None, "the same")
    held.waiting.add(Sender(), lambda: found.append("next"), None, "the same")
    gone.is_gone = True
    held.waiting.end_overdue()
    held.go_on()
    assert found == ["next"]


def test_one_that_cannot_even_be_refused_leaves_none_behind_it_alone() -> None:
    held, found, mute = Held(0), list[str](), Sender()

    def fail() -> None:
        raise SamplingError("no such thing")

    def lost(response: Any, flags: int) -> None:
        raise ConnectionResetError

    mute.send = lost  # type: ignore[method-assign]
    held.waiting.add(mute, fail, None, "the same")
    held.waiting.add(Sender(), lambda: found.append("next"), None, "the same")
    held.go_on()
    assert found == ["next"]


def test_what_cannot_be_made_is_told() -> None:
    held, sender = Held(2), Sender()

    def fail() -> None:
        raise SamplingError("no such thing")

    held.waiting.add(sender, fail)
    held.go_on()
    assert sender.told == ["no such thing"]


def test_those_whose_time_is_over_or_whose_client_has_left_are_answered_while_others_hold_them_up() -> None:
    held, found = Held(3), list[str]()
    late, gone, patient = Sender(), Sender(), Sender()
    held.waiting.add(late, lambda: found.append("late"), time.monotonic() - 1)
    held.waiting.add(gone, lambda: found.append("gone"), time.monotonic() + 600)
    held.waiting.add(patient, lambda: found.append("patient"), time.monotonic() + 600)
    gone.is_gone = True
    held.waiting.end_overdue()
    assert (late.told, gone.told, patient.told) == (
        ["the request was ended: timeout"],
        ["the request was ended: cancelled"],
        [],
    )
    held.waiting.add(Sender(), lambda: found.append("next"))  # there is room again
    held.go_on()
    assert found == ["patient", "next"]
    assert len(late.told) == 1


def settings(folder: Path, **parameters: str) -> Settings:
    (folder / "1").mkdir(exist_ok=True)
    (folder / "1" / "config.json").write_text("{}")
    given = {key: {"string_value": value} for key, value in parameters.items()}
    args = {"model_repository": str(folder), "model_version": "1", "model_instance_kind": "CPU"}
    return read_settings({"name": "tiny", "parameters": given}, args, threading.Lock)  # type: ignore[arg-type]


def test_the_folder_is_the_models_or_the_versions(tmp_path: Path) -> None:
    assert settings(tmp_path).options.adapters is None
    (tmp_path / "adapters").mkdir()
    found = settings(tmp_path, adapters="adapters", max_adapters="3").options
    assert (found.adapters, found.max_adapters) == (tmp_path / "adapters", 3)
    (tmp_path / "1" / "adapters").mkdir()
    assert settings(tmp_path, adapters="adapters").options.adapters == tmp_path / "1" / "adapters"


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="parameter 'adapters' names the folder 'none'"):
        settings(tmp_path, adapters="none")
    with pytest.raises(ModelLoadError, match="'max_adapters'"):
        settings(tmp_path, max_adapters="0")
