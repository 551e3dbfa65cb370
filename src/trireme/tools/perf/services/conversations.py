"""Conversations with OpenAI's endpoints: the turns of a session one after the other, each with all that was said."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import monotonic_ns
from typing import Any

import orjson

from trireme.tools.perf.control.connect import server_address
from trireme.tools.perf.data.batches import RequestContent
from trireme.tools.perf.data.json_files import read_json
from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.load.calls import Call
from trireme.tools.perf.load.drivers import Driver
from trireme.tools.perf.load.records import Recorder
from trireme.tools.perf.load.schedules import LoadLevel
from trireme.tools.perf.load.sources import PlainSource
from trireme.tools.perf.options import PerfOptions
from trireme.tools.perf.payloads import entry_body, prepared_bodies
from trireme.tools.perf.preparation import PreparedLoad
from trireme.tools.perf.wire import answers
from trireme.tools.perf.wire.http_requests import HttpJsonForm, post_head


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a session, without what was said before it."""

    content: int
    body: dict[str, Any]
    delay_ns: int
    """Between the answer before it and this one."""


def prepare_conversations(options: PerfOptions) -> PreparedLoad:
    """The sessions of --input-data in the order in which they begin there; raises PerfError."""
    sessions: dict[str, list[Turn]] = {}
    contents: list[RequestContent] = []
    for path in options.inputs.sources:
        for number, entry in enumerate(read_json(path)["data"]):
            place = f"'{path}', entry {number}"
            body = entry_body(entry, place)
            turns = sessions.setdefault(str(_first(entry, "session_id", place)), [])
            turns.append(Turn(len(contents), body, _delay_ns(entry, place)))
            contents.append(RequestContent((), (), None, orjson.dumps(body)))
    path = f"/{options.endpoint.lstrip('/')}"
    prepared = prepared_bodies(options, contents, path)
    address = server_address(options)
    head = post_head(address.base + path, address.authority, options.headers)
    every = list(sessions.values())
    recipe = replace(
        prepared.recipe,
        keeps_bodies=True,
        make_driver=lambda recorder: SessionLoop(every, recorder, head, prepared.recipe.kind),
    )
    return replace(prepared, recipe=recipe)


class SessionLoop(Driver):
    """A number of sessions at a time; the next one begins when one has had its last answer."""

    def __init__(self, sessions: Sequence[Sequence[Turn]], recorder: Recorder, head: bytes, kind: str) -> None:
        super().__init__(PlainSource(()), recorder)
        self._waiting = deque(_Session(turns) for turns in sessions)
        self._head = head
        self._kind = kind
        self._due: list[tuple[int, int, _Session]] = []

    def configure(self, level: LoadLevel) -> None:
        super().configure(level)
        for _ in range(level.concurrency):
            self._begin()

    def wait_s(self) -> float | None:
        if not self._due or self.is_stopping or self.error is not None:
            return None
        return max(0.0, (self._due[0][0] - monotonic_ns()) / 1e9)

    def fire(self) -> None:
        while self._due and self._due[0][0] <= monotonic_ns() and self._take_budget():
            self._send_turn(heapq.heappop(self._due)[2])

    def finished(self, call: Call, now_ns: int, body: Any) -> None:
        session: _Session = call.context
        outputs = call.outputs if body is None else [*call.outputs, body]
        session.history.append(said(self._kind, outputs))
        super().finished(call, now_ns, body)

    def _released(self, call: Call) -> None:
        session: _Session = call.context
        if not session.turns:
            self._begin()
        else:
            due_ns = monotonic_ns() + session.turns[0].delay_ns
            heapq.heappush(self._due, (due_ns, session.turns[0].content, session))

    def _begin(self) -> None:
        if self._waiting and self._take_budget():
            self._send_turn(self._waiting.popleft())

    def _send_turn(self, session: _Session) -> None:
        turn = session.turns.popleft()
        call = Call()
        call.context, call.content = session, turn.content
        call.data = HttpJsonForm(self._head, orjson.dumps(session.with_history(turn.body))).plain
        self._send(call)


class _Session:
    """What was said, and what is still to be."""

    __slots__ = ("history", "turns")

    def __init__(self, turns: Sequence[Turn]) -> None:
        self.turns = deque(turns)
        self.history: list[Any] = []

    def with_history(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body with all messages so far, which its own then belong to."""
        messages = body.get("messages")
        if not isinstance(messages, list):
            return body
        self.history += messages
        return {**body, "messages": self.history}


def said(kind: str, outputs: Sequence[Any]) -> dict[str, Any]:
    """The assistant's message in an answer, whole or in pieces."""
    parts: list[str] = []
    for output in outputs:
        try:
            choice = orjson.loads(answers.response_text(kind, output))["choices"][0]
        except (orjson.JSONDecodeError, LookupError, TypeError):  # the mark at the end of a stream, or the counts
            continue
        if isinstance(message := choice.get("message"), dict):
            return message
        if isinstance(text := (choice.get("delta") or {}).get("content"), str):
            parts.append(text)
    return {"role": "assistant", "content": "".join(parts)}


def _first(entry: dict[str, Any], name: str, place: str) -> Any:
    given = entry.get(name)
    value = given[0] if isinstance(given, list) and given else given
    if value is None or isinstance(value, (list, dict)):
        raise PerfError(f'{place}: --session-concurrency needs a "{name}"')
    return value


def _delay_ns(entry: dict[str, Any], place: str) -> int:
    if entry.get("delay") in (None, []):
        return 0
    value = _first(entry, "delay", place)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 1e12:
        raise PerfError(f"{place}: 'delay' is no number of milliseconds")
    return int(value * 1e6)
