"""Grammars that would end or hold up the model's process are refused, and nobody else notices."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from running_server import RunningServer

from trireme.llm.grammar.compile_check_queue import MAX_SLOW

RULES = "start: r0\n" + "\n".join(f'r{at}: "a" r{at + 1}' for at in range(4000)) + '\nr4000: "b"'
TERMINALS = "start: T0\n" + "\n".join(f'T{at}: "a" T{at + 1}' for at in range(5000)) + '\nT5000: "b"'
MULTIPLES = {"allOf": [{"type": "integer", "multipleOf": prime} for prime in (9973, 9967, 9949, 9941)]}
FOURFOLD = "\n".join(f"r{at}: r{at + 1} r{at + 1} r{at + 1} r{at + 1}" for at in range(20))


def chain(entry: str) -> dict[str, Any]:
    """Definitions that name one another in a row."""
    entries = {f"d{at}": json.loads(entry.replace("NEXT", f'{{"$ref": "#/$defs/d{at + 1}"}}')) for at in range(2000)}
    return {"$ref": "#/$defs/d0", "$defs": {**entries, "d2000": {"type": "string"}}}


OVERFLOWS: list[dict[str, Any]] = [
    {"guided_grammar": RULES},
    {"guided_grammar": TERMINALS},
    {"guided_json": chain("NEXT")},
    {"guided_json": chain('{"type": "array", "items": NEXT}')},
    {"guided_json": chain('{"type": "object", "properties": {"a": NEXT}, "required": ["a"]}')},
]
ENDLESS: list[dict[str, Any]] = [
    {"guided_json": {"type": "integer", "multipleOf": 9_999_991}},
    {"guided_json": MULTIPLES},
]


def complete(server: RunningServer, fields: dict[str, Any]) -> tuple[int, Any]:
    status, _, body = server.ask("POST", "/v1/completions", {"model": "scribe", "prompt": "Once", **fields})
    return status, json.loads(body)


def test_what_would_end_or_hold_up_the_model_is_refused_and_a_stream_goes_on(scribe: RunningServer) -> None:
    told: list[bytes] = []
    fields = {"model": "scribe", "prompt": "Once", "max_tokens": 400, "ignore_eos": True, "stream": True}
    stream = threading.Thread(target=lambda: told.append(scribe.ask("POST", "/v1/completions", fields)[2]))
    stream.start()
    for grammar in OVERFLOWS + ENDLESS:
        status, answer = complete(scribe, grammar)
        (option,) = grammar
        assert status == 400, answer
        assert f"'{option}' cannot be compiled: it " in answer["error"]["message"]
        assert answer["error"]["type"] == "invalid_request_error"
    stream.join(120)
    assert told[0].endswith(b"data: [DONE]\n\n")
    assert b"error" not in told[0]
    assert complete(scribe, {"guided_json": {"type": "boolean"}})[0] == 200


def test_others_are_answered_while_a_grammar_is_tried(scribe: RunningServer) -> None:
    ended: list[str] = []

    def ask(name: str, fields: dict[str, Any]) -> None:
        complete(scribe, fields)
        ended.append(name)

    schema = {"type": "integer", "multipleOf": 9_999_973}
    hostile = threading.Thread(target=ask, args=("hostile", {"guided_json": schema}))
    hostile.start()
    time.sleep(0.5)  # it is being tried by now
    ask("other", {"max_tokens": 1})
    hostile.join(120)
    assert ended == ["other", "hostile"]


def test_a_cheap_grammar_passes_many_that_take_long_and_too_many_of_those_are_refused(scribe: RunningServer) -> None:
    with ExitStack() as stack:
        slow = [stack.enter_context(asked(scribe, {"guided_json": never(number)})) for number in range(40)]
        scribe.until(lambda: answered(slow), 120)
        status, answer = complete(scribe, {"max_tokens": 1, "guided_regex": "[p-t]{4}"})
        assert status == 200, answer
        assert len(answered(slow)) <= len(slow) - MAX_SLOW
        told = answered(slow)[0].recv(65536)
        assert b" 503 " in told.splitlines()[0]
        assert b"grammars wait that take longer than 0.02 s to compile" in told
        assert b"try again later" in told
    # Their clients have left, which is soon noticed: they hold up nobody.
    waiting = {"guided_json": MULTIPLES | {"title": "it has a turn"}}
    scribe.until(lambda: complete(scribe, waiting)[0] == 400, 30)


def never(number: int) -> dict[str, Any]:
    """Schemas that take longer than any may."""
    return {"type": "integer", "multipleOf": 9_500_001 + 2 * number}


@contextmanager
def asked(server: RunningServer, grammar: dict[str, Any]) -> Iterator[socket.socket]:
    """A request whose client leaves at the end of the context."""
    body = json.dumps({"model": "scribe", "prompt": "Once", **grammar}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.ports["http"])) as connection:
        connection.sendall(head.encode() + body)
        yield connection


def answered(connections: Sequence[socket.socket]) -> list[socket.socket]:
    """Those that have an answer by now."""
    return select.select(connections, [], [], 0)[0]


@pytest.mark.parametrize(
    "grammar", [{"guided_regex": "(a?){500}a{500}"}, {"guided_grammar": f'start: r0\n{FOURFOLD}\nr20: "x"'}]
)
def test_what_is_too_large_to_be_followed_is_the_clients_mistake(
    scribe: RunningServer, grammar: dict[str, str]
) -> None:
    status, answer = complete(scribe, {"max_tokens": 16, **grammar})
    (option,) = grammar
    assert status == 400, answer
    assert f"'{option}' cannot be " in answer["error"]["message"]
    assert "too many" in answer["error"]["message"].lower()
