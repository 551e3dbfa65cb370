"""Texts of one request, as the engine is told of them."""

from __future__ import annotations

from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

from trireme.backends.token_model.engine_model import TokenModel
from trireme.backends.token_model.family import INFLIGHT
from trireme.backends.token_model.token_answer import Lane
from trireme.backends.token_model.token_request import Row
from trireme.llm.sampling_params import SamplingParams


class RecordingCore:
    """Takes what is to be written, and writes nothing."""

    def __init__(self) -> None:
        self.new_id = partial(next, count(1))
        self.submitted: list[dict[str, Any]] = []

    def submit(self, tokens: list[int], params: SamplingParams, *listeners: Any, **more: Any) -> None:
        self.submitted.append(more)


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

    def lanes_by_row(self) -> list[list[Lane]]:
        return self._lanes


def test_all_texts_of_a_request_share_the_room_of_one(monkeypatch: Any) -> None:
    model, core = TokenModel(INFLIGHT), RecordingCore()
    wishes = SimpleNamespace(is_stop=False, is_stream=False, adapter=None)
    monkeypatch.setattr("trireme.backends.token_model.engine_model.read_request", lambda *given: wishes)
    answers = iter([[Answer(2), Answer(2)], [Answer(1)]])
    parts: dict[str, Any] = {
        "_core": core, "_limits": None, "_is_decoupled": True, "_types": {}, "_caretaker": SimpleNamespace(active={}),
        "_answers": lambda *given: next(answers),
    }  # fmt: skip
    for name, value in parts.items():
        monkeypatch.setattr(model, name, value, raising=False)
    for _ in range(2):
        model._begin(cast(Any, Request()), cast(Any, None))
    requests = [more["request_id"] for more in core.submitted]
    assert len(requests) == 5
    assert len(set(requests[:4])) == 1
    assert requests[4] != requests[0]
    assert not {more["sequence_id"] for more in core.submitted} & set(requests)
