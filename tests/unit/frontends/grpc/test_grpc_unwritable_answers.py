"""Responses that cannot be written, as none should be: a gRPC client is told so, of the request that it was."""

from __future__ import annotations

from typing import Any

import pytest

from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.proto import service_pb2

FAILURE = "the server failed to answer the request: TypeError: "


class Counted:
    """Statistics of the model."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def record_unanswered(self, request: Any, message: str) -> None:
        self.messages.append(message)


@pytest.fixture
def counted(client: Any) -> Counted:
    """Of the requests that the test answers."""
    counted = Counted()
    hold = client.server.inference._held

    def held(request: Any) -> None:
        request.answer_stats = counted
        hold(request)

    client.server.inference._held = held
    return counted


@pytest.fixture
def path(tools: Any) -> str:
    return f"{tools.SERVICE}ModelStreamInfer"


def good(is_final: bool = True) -> InferenceResponse:
    return InferenceResponse([Tensor("OUTPUT0", "FP32", (1, 1), bytes(4))], is_final=is_final)


def unwritable(is_final: bool = True) -> InferenceResponse:
    name: Any = 5
    return InferenceResponse([Tensor(name, "FP32", (1, 1), bytes(4))], is_final=is_final)


def replies(client: Any, tools: Any, stream_id: int) -> tuple[dict[str, str], list[Any]]:
    client.loop.turn()
    fields, body = client.answers().get(stream_id, ({}, b""))
    return fields, [service_pb2.ModelStreamInferResponse.FromString(m) for m in tools.split_messages(body)]


def test_a_call_ends_with_a_status_and_counts(client: Any, tools: Any, counted: Counted) -> None:
    stream_id = client.infer(tools.infer_request("held", "a"))
    [request] = client.server.inference.held
    request.respond(unwritable())
    fields, _ = client.answers_of(stream_id)
    assert fields["grpc-status"] == "13"
    assert fields["grpc-message"].startswith(FAILURE)
    [message] = counted.messages
    assert message.startswith(FAILURE)


@pytest.mark.parametrize("is_final", [False, True])
def test_a_stream_goes_on_with_an_error_in_its_place(
    client: Any, tools: Any, path: str, counted: Counted, is_final: bool
) -> None:
    stream_id = client.call(path, *(tools.infer_request("held", name) for name in "ab"))
    failing, other = client.server.inference.held
    failing.respond(unwritable(is_final))
    failing.respond(good(is_final=True))  # not behind a gap
    other.respond(good())
    fields, (error, answer) = replies(client, tools, stream_id)
    assert error.error_message.startswith(FAILURE)
    assert error.infer_response.id == "a"
    assert error.infer_response.parameters["triton_final_response"].bool_param
    assert (answer.infer_response.id, answer.error_message) == ("b", "")
    assert fields["grpc-status"] == "0"
    assert failing.is_cancelled is not is_final
    assert not other.is_cancelled
    assert len(counted.messages) == 1


def test_a_response_with_a_number_that_no_parameter_can_be_counts_too(
    client: Any, tools: Any, path: str, counted: Counted
) -> None:
    stream_id = client.call(path, tools.infer_request("held", "a"))
    [request] = client.server.inference.held
    response = good()
    response.parameters = {"big": 2**64}
    request.respond(response)
    _, [error] = replies(client, tools, stream_id)
    assert error.error_message == "the model's parameter 'big' is a number of more than 64 bits"
    assert counted.messages == [error.error_message]


def test_an_error_waits_for_its_turn(client: Any, tools: Any, path: str, counted: Counted) -> None:
    stream_id = client.call(path, *(tools.infer_request("held", name) for name in "ab"))
    first, failing = client.server.inference.held
    failing.respond(unwritable())
    assert replies(client, tools, stream_id)[1] == []
    first.respond(good())
    _, (answer, error) = replies(client, tools, stream_id)
    assert [answer.infer_response.id, error.infer_response.id] == ["a", "b"]
    assert error.error_message.startswith(FAILURE)


def test_it_ends_the_stream_where_metadata_says_so(client: Any, tools: Any, path: str, counted: Counted) -> None:
    requests = [tools.infer_request("held", name) for name in "ab"]
    stream_id = client.call(path, *requests, metadata=[("triton_grpc_error", "true")])
    failing, other = client.server.inference.held
    failing.respond(unwritable())
    fields, messages = replies(client, tools, stream_id)
    assert (fields["grpc-status"], messages) == ("13", [])
    assert fields["grpc-message"].startswith(FAILURE)
    assert other.is_cancelled


def test_a_stream_ends_where_not_even_the_error_can_be_written(
    client: Any, tools: Any, path: str, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream_id = client.call(path, *(tools.infer_request("held", name) for name in "ab"))
    failing, other = client.server.inference.held

    def raise_(*told: Any) -> None:
        raise MemoryError

    for name in ("encode_in_stream", "encode_execution_error"):
        monkeypatch.setattr(type(client.context.encoder), name, raise_)
    failing.respond(good())
    fields, messages = replies(client, tools, stream_id)
    assert (fields["grpc-status"], messages) == ("13", [])
    assert other.is_cancelled
    assert client.context.call_count == 0
