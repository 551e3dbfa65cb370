"""Texts of one request, as the engine is told of them."""

from __future__ import annotations

from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trireme.backends.python.pb_utils.errors import ErrorCode
from trireme.backends.token_model.engine_model import TokenModel
from trireme.backends.token_model.family import INFLIGHT
from trireme.backends.token_model.token_answer import Lane
from trireme.backends.token_model.token_request import Row
from trireme.llm.sampling_params import SamplingParams


class RecordingCore:
    """Takes what is to be written, and writes nothing."""

    def __init__(self, errors: dict[int, Exception] | None = None) -> None:
        """`errors` by the number of the text, from 0."""
        self.new_id = partial(next, count(1))
        self.submitted: list[dict[str, Any]] = []
        self._errors = errors or {}

    def submit(self, tokens: list[int], params: SamplingParams, *listeners: Any, **more: Any) -> None:
        self.submitted.append(more)
        if error := self._errors.get(len(self.submitted) - 1):
            raise error


class Request:
    """Of so many prompts, without an id and without a limit of time."""

    def request_id(self) -> str:
        return ""

    def requested_output_names(self) -> list[str]:
        return ["output_ids"]

    def timeout(self) -> int:
        return 0


class Answer:
    """To so many prompts."""

    is_closed = False

    def __init__(self, prompts: int) -> None:
        self._lanes = [[Lane(Row([5], SamplingParams(), (), (), 0))] for _ in range(prompts)]
        self.errors: list[tuple[str, ErrorCode]] = []

    def lanes_by_row(self) -> list[list[Lane]]:
        return self._lanes

    def fail(self, error: Exception, code: ErrorCode) -> None:
        self.errors.append((str(error), code))


def begin(core: RecordingCore, *requests: list[Answer]) -> None:
    """Lets a model of that engine begin requests, which have these answers."""
    model, answers = TokenModel(INFLIGHT), iter(requests)
    token_request = SimpleNamespace(is_stop=False, is_stream=False, adapter=None)
    parts: dict[str, Any] = {
        "_core": core, "_limits": None, "_is_decoupled": True, "_types": {}, "_watchdog": SimpleNamespace(active={}),
        "_answers": lambda *given: next(answers),
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("trireme.backends.token_model.engine_model.read_request", lambda *given: token_request)
        for name, value in parts.items():
            patched.setattr(model, name, value, raising=False)
        for _ in requests:
            model._begin(cast(Any, Request()), cast(Any, None))


def test_all_texts_of_a_request_share_the_room_of_one() -> None:
    core = RecordingCore()
    begin(core, [Answer(2), Answer(2)], [Answer(1)])
    requests = [more["request_id"] for more in core.submitted]
    assert len(requests) == 5
    assert len(set(requests[:4])) == 1
    assert requests[4] != requests[0]
    assert not {more["sequence_id"] for more in core.submitted} & set(requests)


def test_a_fault_of_ours_in_a_later_text_is_logged_and_told_as_internal(caplog: pytest.LogCaptureFixture) -> None:
    both, other = Answer(2), Answer(1)
    faults: dict[int, Exception] = {1: ZeroDivisionError("first"), 2: ZeroDivisionError("second")}
    begin(RecordingCore(faults), [both, other])
    assert both.errors == [("first", ErrorCode.INTERNAL)]
    assert other.errors == [("second", ErrorCode.INTERNAL)]
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == list(faults.values())
