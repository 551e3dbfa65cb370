"""Requests wait for adapters and grammars no longer than they may, and take nothing from others after that."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_adapters import executor_of, write_adapters
from tiny_language_models import build
from waiting import until
from waiting_senders import Sender

from trireme.backends.llm.pending_requests import PendingRequests
from trireme.backends.python.pb_utils.errors import ErrorCode
from trireme.llm.adapters.adapter import PlacedAdapter
from trireme.llm.adapters.store import AdapterStore
from trireme.llm.admission_errors import IsWanted, NotWantedError
from trireme.llm.grammar.compiler import NewGrammarError
from trireme.llm.options import EngineOptions


class Prepared:
    """An engine with places for two adapters, and those that were begun with one."""

    def __init__(self, folder: Path) -> None:
        tiny = build("llama", folder / "model")
        write_adapters(tiny, folder / "adapters", ("french", "german", "polish", "breton"))
        executor = executor_of(tiny)
        self.store = AdapterStore(executor.spec, EngineOptions(adapters=folder / "adapters", max_adapters=2), executor)
        self.look_again = threading.Event()
        grammars = SimpleNamespace(look_again=self.look_again.set, compiles_at_once=True)
        self.all: Any = PendingRequests(SimpleNamespace(adapters=self.store, grammars=grammars), 100)  # type: ignore[arg-type]
        self.begun: list[PlacedAdapter] = []

    def ask(self, name: str, deadline: float | None = None) -> Sender:
        sender = Sender()
        self.all.adapt(name, sender, deadline, self.begun.append)
        return sender

    def fill(self) -> None:
        """Uses all places."""
        for name in ("french", "german"):
            self.ask(name)
        until(lambda: len(self.begun) == 2)


@pytest.fixture
def prepared(tmp_path: Path) -> Iterator[Prepared]:
    found = Prepared(tmp_path)
    yield found
    found.store.close()
    found.all.stop()


def test_a_request_whose_time_is_over_is_ended_while_no_place_is_free(prepared: Prepared) -> None:
    prepared.fill()
    late = prepared.ask("polish", time.monotonic() + 600)
    until(lambda: prepared.store._kept["french"].is_leaving)
    patient = prepared.ask("breton", time.monotonic() + 600)
    (one,) = next(iter(prepared.all._adapters._loads._waiting.values()))
    one.deadline = time.monotonic()
    prepared.all.end_overdue()
    assert late.told == ["the request was ended: timeout"]
    prepared.store.give_back(prepared.begun.pop(0))
    until(lambda: [adapter.name for adapter in prepared.begun] == ["german", "breton"])
    assert patient.told == []
    assert prepared.store.kept_names == ["german", "breton"]


def test_a_place_goes_to_the_next_where_a_client_has_left(prepared: Prepared) -> None:
    prepared.fill()
    gone = prepared.ask("polish")
    until(lambda: prepared.store._kept["french"].is_leaving)
    again = prepared.ask("french")  # which waits until it has left
    gone.is_gone = True
    prepared.all.end_overdue()
    assert gone.told == ["the request was ended: cancelled"]
    until(lambda: len(prepared.begun) == 3)  # nobody needs its place any more
    assert again.told == []
    assert prepared.begun[2] is prepared.begun[0]
    assert prepared.store._kept["french"].user_count == 2


def test_an_adapter_that_nobody_has_is_told_of_while_others_wait_for_a_place(prepared: Prepared) -> None:
    prepared.fill()
    patient = prepared.ask("polish")
    for name in ("frensh", "../adapters/french"):
        wrong = prepared.ask(name)
        until(lambda: wrong.told)  # noqa: B023
        assert f"there is no adapter '{name}'" in wrong.told[0]
    assert patient.told == []


def test_the_end_is_no_fault_of_those_that_wait_for_a_place_or_ask_later(prepared: Prepared) -> None:
    prepared.fill()
    patient = prepared.ask("polish")
    until(lambda: prepared.store._kept["french"].is_leaving)
    prepared.store.close()
    late = prepared.ask("french")
    until(lambda: patient.told and late.told)
    assert patient.told == late.told == ["the engine was closed"]
    assert patient.codes == late.codes == [ErrorCode.UNAVAILABLE]


def test_one_whose_grammar_is_there_at_the_end_may_still_ask_for_an_adapter(prepared: Prepared) -> None:
    sender, lines = Sender(), (prepared.all._compiles, prepared.all._adapters._loads)

    def compile_new(is_wanted: IsWanted) -> Any:
        until(lambda: any(line._threads._shutdown for line in lines))

    new = NewGrammarError(("source", "guided_regex"), compile_new)
    prepared.all.compile(new, sender, None, lambda: prepared.all.adapt("french", sender, None, prepared.begun.append))
    prepared.store.close()
    prepared.all.stop()
    assert (sender.told, sender.codes) == (["the engine was closed"], [ErrorCode.UNAVAILABLE])


def test_a_grammar_that_nobody_waits_for_any_more_is_given_up(prepared: Prepared) -> None:
    sender, has_begun, told = Sender(), threading.Event(), list[str]()

    def compile_new(is_wanted: IsWanted) -> Any:
        has_begun.set()
        while is_wanted():
            assert prepared.look_again.wait(60)
        told.append("given up")
        raise NotWantedError

    new = NewGrammarError(("source", "guided_regex"), compile_new)
    prepared.all.compile(new, sender, time.monotonic() + 600, lambda: told.append("begun"))
    assert has_begun.wait(60)
    sender.is_gone = True
    prepared.all.end_overdue()
    assert sender.told == ["the request was ended: cancelled"]
    until(lambda: told == ["given up"])
