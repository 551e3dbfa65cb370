"""Whatever a model raises is the failure of what it was asked, and the worker goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trireme.backends.python.channel import messages

Start = Callable[..., Any]
Form = Callable[..., tuple[Any, ...]]

MODEL = """
class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no words")

class Leaving(Exception):
    def __str__(self):
        raise SystemExit(3)

class Base(BaseException):
    pass

class TritonPythonModel:
    def is_ready(self):
        raise Mute()

    {definition} execute(self, requests):
        if requests[0].request_id():
            raise {raised}
        return [pb_utils.InferenceResponse([])]
"""


@pytest.mark.parametrize("definition", ["def", "async def"])
@pytest.mark.parametrize(
    ("raised", "text"),
    [
        ("Mute()", "Mute: <its text could not be made: RuntimeError>"),
        ("Leaving()", "Leaving: <its text could not be made: SystemExit>"),
        ("Base('x' * 70_000)", "Base: " + "x" * (65_536 - 6) + "... (4470 characters more)"),
        ("GeneratorExit()", "GeneratorExit: <EMPTY MESSAGE>"),
        ("Base('mine')", "Base: mine"),
        ("SystemExit(2)", "SystemExit: 2"),
    ],
)
def test_an_exception_of_any_kind_fails_the_batch_and_not_the_worker(
    serving: Start, form: Form, definition: str, raised: str, text: str
) -> None:
    host = serving(MODEL.format(raised=raised, definition=definition))
    host.execute(form(1, id="first"), batch=1)
    _, batch, _, error, *_ = host.results()
    assert (batch, error[1].partition("\n")[0]) == (1, text)

    host.execute(form(2), batch=2)
    _, batch, answers, error, *_ = host.results()
    assert (batch, error, len(answers)) == (2, None, 1)


def test_a_readiness_check_that_cannot_even_say_why_is_answered(serving: Start) -> None:
    host = serving(MODEL.format(raised="Mute()", definition="def"))

    _, token, is_ready, reason = host.ask((messages.CHECK_READY, 4), messages.READINESS)

    assert (token, is_ready) == (4, False)
    assert reason.startswith("Mute: <its text could not be made: RuntimeError>")


@pytest.mark.parametrize("raised", ["Mute()", "GeneratorExit()"])
def test_an_initialize_that_raises_anything_is_answered(start_worker: Start, raised: str) -> None:
    source = MODEL.format(raised="Mute()", definition="def")
    host = start_worker(f"{source}\n    def initialize(self, args):\n        raise {raised}\n")

    answer = host.ask((messages.INITIALIZE, {}))

    assert answer[0] == messages.FAILED
    assert answer[2].startswith(raised.removesuffix("()"))
