"""Signals are noted where something is written, and raised where something is waited for."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from trireme.tools.analyze.errors import Interrupted
from trireme.tools.analyze.signals import Signals
from trireme.tools.perf.measure.interruption import Interruption


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def signals(told: list[str]) -> Iterator[Signals]:
    with Signals(Interruption(), told.append) as signals:
        yield signals


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_wait_ends_at_once(signals: Signals, told: list[str], number: int) -> None:
    began = time.monotonic()
    with pytest.raises(Interrupted), signals.waiting():
        send(number)
        time.sleep(60)
    assert time.monotonic() - began < 30
    assert len(told) == 1


def test_a_signal_before_a_wait_is_not_lost(signals: Signals) -> None:
    send(signal.SIGTERM)
    with pytest.raises(Interrupted), signals.waiting():
        pytest.fail("it waits")


def test_a_signal_that_a_library_turns_into_another_error_is_an_interruption(signals: Signals) -> None:
    with pytest.raises(Interrupted) as raised, signals.waiting():
        try:
            send(signal.SIGINT)
            time.sleep(60)
        finally:
            raise KeyError("what the library had begun")
    assert isinstance(raised.value.__cause__, KeyError)


def test_an_error_without_a_signal_stays_what_it_is(signals: Signals) -> None:
    with pytest.raises(KeyError), signals.waiting():
        raise KeyError


def test_what_is_no_wait_goes_on_and_a_second_signal_leaves(signals: Signals) -> None:
    with pytest.raises(Interrupted), signals.waiting():
        with signals.waiting():
            pass
        send(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        send(signal.SIGTERM)


def test_the_signals_are_as_before_afterwards(told: list[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Signals(Interruption(), told.append):
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
