"""What requests wait for before they are begun: a grammar that is compiled, an adapter that is read and has a place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from trireme.backends.python.pb_utils.sender import InferenceResponseSender
from trireme.backends.served_engine.waiting_requests import Made, WaitingRequests
from trireme.llm.adapters.adapter import PlacedAdapter
from trireme.llm.grammar.compiler import NewGrammarError
from trireme.llm.grammar.trial_line import MAX_IN_LINE
from trireme.llm.text_engine import Engine
from trireme.llm.unbegun import IsWanted

BeginAdapted = Callable[[PlacedAdapter], None]


class Preparations:
    """Of one engine; a request that is ended meanwhile, by its time or its client, is answered at once."""

    def __init__(self, engine: Engine, max_waiting: int) -> None:
        """`max_waiting` requests may wait for each; 0: as many as come."""
        self._adapters = engine.adapters
        engine.grammars.compiles_at_once = False
        self._compiles = WaitingRequests(
            max_waiting, "grammars to be compiled", MAX_IN_LINE, engine.grammars.look_again
        )
        self._loads = WaitingRequests(max_waiting, "adapters to be read", 1, engine.adapters.look_again)
        self._searches = WaitingRequests(max_waiting, "adapters to be looked for", 1, engine.adapters.look_again)
        """What nobody has does not wait until there is a place for what somebody has."""

    def compile(
        self, new: NewGrammarError, sender: InferenceResponseSender, deadline: float | None, begin: Callable[[], None]
    ) -> None:
        """Lets a request be begun once its grammar is kept; raises EngineBusyError where too many wait."""

        def make(is_wanted: IsWanted) -> Made:
            new.compile(is_wanted)
            return Made(begin)

        self._compiles.add(sender, make, deadline, new.grammar)

    def adapt(self, name: str, sender: InferenceResponseSender, deadline: float | None, begin: BeginAdapted) -> None:
        """Begins a request with the adapter, now or once it is there; who begins gives it back. Raises EngineBusyError
        where too many wait."""
        adapter = self._adapters.take_if_kept(name)
        if adapter is not None:
            begin(adapter)
            return

        def make(is_wanted: IsWanted) -> Made:
            taken = self._adapters.take(name, is_wanted)
            return Made(partial(begin, taken), partial(self._adapters.give_back, taken))

        line = self._loads if self._adapters.has(name) else self._searches
        line.add(sender, make, deadline)

    def end_overdue(self) -> None:
        """Answers those whose time is over or whose client has left; to be called now and then, from another thread."""
        for line in (self._compiles, self._loads, self._searches):
            line.end_overdue()

    def stop(self) -> None:
        """Returns when all that wait were begun, or refused: the engine is closed by then."""
        for line in (self._compiles, self._loads, self._searches):  # from the first one goes on to the others
            line.stop()
