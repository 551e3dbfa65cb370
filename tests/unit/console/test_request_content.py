"""What was in slow and failed requests: shown while they are recorded, bounded, and forgotten with the recording."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import pytest
from recorder_stage import Stage

from trireme.console.request_content import content_of
from trireme.console.request_list import request_list
from trireme.core.batch import BatchTiming
from trireme.core.call_excerpt import SIDE_BYTES
from trireme.core.errors import InternalError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.observe.failure_reasons import BACKEND
from trireme.observe.recent.excerpts import MOST_EXCERPTS
from trireme.observe.recent.requests import RecentRequests
from trireme.observe.stats import ModelStats

TIMING = BatchTiming(0, 1, 0)


class Watched(Stage):
    """A recorder, and a model whose requests are watched."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = RecentRequests(clock=lambda: self.now_ns)
        self.recorder.excerpts = self.requests.excerpts
        self.stats = ModelStats("m", 1)
        self.stats.watch = self.requests.watch(self.stats)

    def fail(self, request: InferenceRequest) -> None:
        self.stats.record_failure(request, BACKEND, self.now_ns, "broke")
        self.models.answer(InferenceResponse.of_error(InternalError("broke")))

    def contents(self, kind: str = "failed") -> list[dict[str, Any]]:
        """Those of the listed requests that have any."""
        found = []
        for entry in request_list(self.requests)[kind]:
            excerpt = self.requests.excerpts.find(entry["content"])
            assert (excerpt is not None) == bool(entry["content"])
            if excerpt is not None:
                found.append(content_of(excerpt))
        return found


@pytest.fixture
def stage() -> Watched:
    return Watched()


def test_nothing_is_kept_without_a_recording(stage: Watched) -> None:
    request = stage.ask()
    assert request.recorded is None
    stage.fail(request)
    listed = request_list(stage.requests)
    assert (listed["is_recording"], listed["failed"][0]["content"]) == (False, 0)


def test_recorded_request_is_shown_with_its_answers(stage: Watched) -> None:
    stage.recorder.start({})
    request = stage.ask(parameters={"temperature": 0.5})
    stage.stats.record_success([request], 0, 10, TIMING)
    stage.models.answer()  # which leaves after it was counted
    (content,) = stage.contents("slowest")
    assert content["parameters"] == {"temperature": 0.5}
    (given,) = content["inputs"]
    assert (given["name"], given["datatype"], given["shape"], given["size_bytes"]) == ("IN", "INT32", (1,), 4)
    assert b64decode(given["data"]) == b"1234"
    assert [b64decode(tensor["data"]) for tensor in content["responses"][0]] == [b"abcd"]
    assert request_list(stage.requests)["is_recording"]


def test_stream_that_was_answered_before_it_was_counted_is_shown_too(stage: Watched) -> None:
    stage.recorder.start({})
    request = stage.ask()
    for number in range(3):
        output = Tensor("OUT", "INT32", (1,), bytes([number] * 4))
        stage.models.requests[0].respond(InferenceResponse([output], is_final=number == 2))
    stage.stats.record_success([request], 0, 10, TIMING)
    (content,) = stage.contents("slowest")
    assert content["response_count"] == 3
    assert [b64decode(response[0]["data"])[0] for response in content["responses"]] == [0, 1, 2]


def test_refused_request_shows_what_it_brought(stage: Watched) -> None:
    stage.recorder.start({})
    stage.requests.refuse(stage.ask(data=b"9999"), "no")
    assert b64decode(stage.contents()[0]["inputs"][0]["data"]) == b"9999"


def test_requests_that_the_recording_does_not_take_stay_closed(stage: Watched) -> None:
    stage.recorder.start({"models": ["other"]})
    stage.fail(stage.ask())
    assert stage.contents() == []


def test_inputs_that_are_left_out_are_shown_with_their_size(stage: Watched) -> None:
    stage.recorder.start({"max_call_bytes": 100})
    stage.fail(stage.ask(data=b"x" * 1000))
    (content,) = stage.contents()
    assert (content["inputs"][0]["size_bytes"], content["inputs"][0]["data"]) == (1000, "")
    assert "1000" in content["note"]


def test_large_requests_are_shown_by_their_beginning(stage: Watched) -> None:
    stage.recorder.start({})
    request = stage.ask(data=b"x" * 1_000_000, parameters={f"p{number}": "y" * 9999 for number in range(1000)})
    stage.stats.record_success([request], 0, 10, TIMING)
    for _ in range(500):
        output = Tensor("OUT", "BYTES", (1,), b"z" * 100)
        stage.models.requests[0].respond(InferenceResponse([output], is_final=False))
    (content,) = stage.contents("slowest")
    assert content["inputs"][0]["size_bytes"] == 1_000_000
    assert len(b64decode(content["inputs"][0]["data"])) == SIDE_BYTES
    assert sum(len(str(value)) for value in content["parameters"].values()) <= SIDE_BYTES
    assert content["response_count"] == 500
    assert sum(len(b64decode(tensor["data"])) for response in content["responses"] for tensor in response) <= SIDE_BYTES


def test_request_with_more_text_than_a_recording_takes_is_shown_without_its_content(stage: Watched) -> None:
    stage.recorder.start({})
    stage.fail(stage.ask(parameters={"much": "y" * (17 << 20)}))
    (content,) = stage.contents()
    assert (content["inputs"], content["parameters"]) == ([], {})
    assert content["note"].startswith("its names and parameters have ")


def test_only_so_many_are_kept(stage: Watched) -> None:
    stage.recorder.start({})
    first = stage.requests.excerpts.keep(stage.ask())
    numbers = [stage.requests.excerpts.keep(stage.ask()) for _ in range(MOST_EXCERPTS)]
    assert stage.requests.excerpts.find(first) is None
    assert all(stage.requests.excerpts.find(number) is not None for number in numbers)


def test_request_that_is_not_among_the_slowest_any_more_is_let_go(stage: Watched) -> None:
    stage.recorder.start({})
    for latency_ns in range(10, 100, 10):
        stage.stats.record_success([stage.ask()], 0, latency_ns, TIMING)
    assert len(stage.requests.excerpts._kept) == 5


def test_failures_that_are_not_listed_any_more_push_out_no_others(stage: Watched) -> None:
    stage.recorder.start({})
    stage.stats.record_success([stage.ask()], 0, 10, TIMING)
    for _ in range(MOST_EXCERPTS):
        stage.now_ns += 1
        stage.fail(stage.ask())
        stage.requests.refuse(stage.ask(), "no")
    assert len(stage.contents("slowest")) == 1
    assert len(stage.contents()) == len(stage.requests.excerpts._kept) - 1 == 20 + 50


def test_contents_go_with_the_minutes(stage: Watched) -> None:
    stage.recorder.start({})
    stage.stats.record_success([stage.ask()], 0, 10, TIMING)
    stage.fail(stage.ask())
    stage.requests.refuse(stage.ask(), "no")
    for _ in range(11):
        stage.now_ns += 61_000_000_000
        stage.requests.pass_time()
    assert stage.requests.excerpts._kept == {}


@pytest.mark.parametrize("end", ["stop", "limit", "lease"])
def test_everything_is_forgotten_when_the_recording_ends(stage: Watched, end: str) -> None:
    recording = stage.recorder.start({"limit": 2} if end == "limit" else {})
    late = stage.ask()
    stage.fail(stage.ask() if end == "limit" else late)
    if end == "stop":
        assert len(stage.contents()) == 1
        stage.recorder.stop(recording.id)
    elif end == "lease":
        assert len(stage.contents()) == 1
        stage.pass_time(31)
    assert not request_list(stage.requests)["is_recording"]
    assert stage.contents() == []
    stage.stats.record_failure(late, BACKEND, stage.now_ns + 1, "broke late")
    assert stage.contents() == []
