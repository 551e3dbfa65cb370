"""Clients that send much: a few at a time, in their order, and nobody waits for one that sends nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trireme.frontends.processes import read_turns
from trireme.frontends.processes.read_turns import MUCH_BYTES, ReadTurns


class _Reader:
    def __init__(self, name: str, told: list[str]) -> None:
        self._name = name
        self._told = told

    inflight = SimpleNamespace(all_bytes=MUCH_BYTES)

    def grant(self) -> None:
        self._told.append(self._name)


class _Loop:
    """Keeps what is to be called later, for the test to call."""

    def __init__(self) -> None:
        self.later: list[Callable[[], None]] = []

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        self.later.append(call)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    moment = [0.0]
    monkeypatch.setattr(read_turns, "monotonic", lambda: moment[0])
    monkeypatch.setattr(read_turns, "_AT_A_TIME", 2)
    monkeypatch.setattr(read_turns, "_GRANTS", 3)
    return moment


def test_a_few_send_on_until_they_have_had_their_share(now: list[float]) -> None:
    told: list[str] = []
    turns, (one, two, three) = _turns(told)
    for reader in (one, two, three, one, two, three, one, one):
        turns.ask(reader)
    assert told == ["1", "2", "1", "2", "1", "3"]
    for reader in (two, two):
        turns.ask(reader)
    assert told[6:] == ["2", "1"]


def test_everybody_may_send_while_little_is_in_flight(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    turns, readers = _turns(told)
    for reader in readers:
        turns.ask(reader)
    assert told == ["1", "2"]
    monkeypatch.setattr(_Reader.inflight, "all_bytes", 0)
    turns.leave(readers[0])
    for reader in readers[1:]:
        turns.ask(reader)
    assert told == ["1", "2", "3", "2", "3"]


def test_one_alone_may_send_without_end(now: list[float]) -> None:
    told: list[str] = []
    turns, (one, *_) = _turns(told)
    for _ in range(10):
        turns.ask(one)
    assert told == ["1"] * 10


def test_nobody_waits_for_those_who_leave_or_stand_still(now: list[float]) -> None:
    told: list[str] = []
    loop = _Loop()
    turns, (one, two, three) = _turns(told, loop)
    four = _Reader("4", told)
    for reader in (one, two, three, four):
        turns.ask(reader)
    assert told == ["1", "2"]
    turns.leave(one)
    assert told == ["1", "2", "3"]
    now[0] = 1.0
    turns.ask(three)
    loop.later.pop()()
    assert told == ["1", "2", "3", "3", "4"]
    assert not loop.later


def test_one_that_sends_steadily_and_slowly_gives_its_turn_on(
    now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_turns, "_GRANTS", 1000)
    told: list[str] = []
    loop = _Loop()
    turns, (one, two, three) = _turns(told, loop)
    for reader in (one, two, three):
        turns.ask(reader)
    for _ in range(2):
        now[0] += 0.2
        turns.ask(one)
        turns.ask(two)
        loop.later.pop()()
    assert "3" not in told
    now[0] += 0.2
    turns.ask(one)
    turns.ask(two)
    loop.later.pop()()
    assert told[-1] == "3"


def test_one_that_leaves_while_it_waits_is_not_told(now: list[float]) -> None:
    told: list[str] = []
    turns, (one, two, three) = _turns(told)
    for reader in (one, two, three):
        turns.ask(reader)
    turns.leave(three)
    turns.leave(one)
    assert told == ["1", "2"]


def _turns(told: list[str], loop: Any = None) -> tuple[ReadTurns, list[_Reader]]:
    turns = ReadTurns(cast(asyncio.AbstractEventLoop, loop or _Loop()))
    return turns, [_Reader(name, told) for name in "123"]
