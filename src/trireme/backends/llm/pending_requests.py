"""Requests that are not begun yet: each waits for its grammar to be compiled, or for its adapter and a place for it."""

from __future__ import annotations

from collections.abc import Callable

from trireme.backends.python.pb_utils.sender import InferenceResponseSender
from trireme.backends.served_engine.adapter_lines import AdapterLines, BeginAdapted
from trireme.backends.served_engine.waiting_requests import Prepared, WaitingRequests, WaitingSender
from trireme.llm.admission_errors import IsWanted
from trireme.llm.grammar.compile_check_queue import MAX_IN_QUEUE
from trireme.llm.grammar.compiler import NewGrammarError
from trireme.llm.text_engine import Engine


class PendingRequests:
    """Of one engine; a request that is ended meanwhile, by its time or its client, is answered at once."""

    def __init__(self, engine: Engine, max_waiting: int) -> None:
        """`max_waiting` requests may wait for each; 0: as many as come."""
        engine.grammars.compiles_at_once = False
        self._compiles = WaitingRequests(
            max_waiting, "grammars to be compiled", MAX_IN_QUEUE, engine.grammars.look_again
        )
        self._adapters = AdapterLines(engine.adapters, max_waiting)

    def compile(
        self, new: NewGrammarError, sender: InferenceResponseSender, deadline: float | None, begin: Callable[[], None]
    ) -> None:
        """Lets a request be begun once its grammar is kept; raises EngineBusyError where too many wait."""

        def make(is_wanted: IsWanted) -> Prepared:
            new.compile(is_wanted)
            return Prepared(begin)

        self._compiles.add(WaitingSender(sender), make, deadline, new.grammar)

    def adapt(self, name: str, sender: InferenceResponseSender, deadline: float | None, begin: BeginAdapted) -> None:
        """Begins a request with the adapter, now or once it is there. Raises EngineBusyError where too many wait."""
        self._adapters.add(name, WaitingSender(sender), deadline, begin)

    def end_overdue(self) -> None:
        """Answers those whose time is over or whose client has left; to be called now and then, from another thread."""
        self._compiles.end_overdue()
        self._adapters.end_overdue()

    def stop(self) -> None:
        """Returns when all that wait were begun, or refused: the engine is closed by then."""
        self._compiles.stop()  # from there requests go on to the adapters
        self._adapters.stop()
