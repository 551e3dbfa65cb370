"""The rules for what execute returns, and the answers made of it."""

from __future__ import annotations

from typing import Any

from trireme.backends.python.channel import messages
from trireme.backends.python.channel.arena import Arena
from trireme.backends.python.channel.channel import Channel
from trireme.backends.python.pb_utils.errors import exception_text
from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.backends.python.pb_utils.response import InferenceResponse, encode_response
from trireme.backends.python.pb_utils.runtime import Runtime
from trireme.backends.python.pb_utils.types import TRITONSERVER_REQUEST_RELEASE_RESCHEDULE
from trireme.core.close_names import closest


class ModelReturnError(Exception):
    """Execute returned something that is no answer to its requests; fails the whole batch."""


def failure_text(error: BaseException) -> str:
    """What the client is told of an execution that failed."""
    return str(error) if isinstance(error, ModelReturnError) else exception_text(error)


def missing_inputs_text(error: BaseException, missing: dict[str, list[str]]) -> str:
    """What explains an error over None: `get_input_tensor_by_name` returned it for an input that is not there."""
    if not missing or not isinstance(error, (AttributeError, TypeError)) or "NoneType" not in str(error):
        return ""
    lines = []
    for name, present in missing.items():
        close = closest(name, present)
        meant = f"did you mean '{close}'?" if close is not None else f"it has: {', '.join(present) or 'none'}"
        lines.append(f"\nThe request has no input '{name}', {meant}")
    return "".join(lines)


def encode_results(
    result: Any, requests: list[InferenceRequest], runtime: Runtime, instance_name: str
) -> list[tuple[Any, ...] | None]:
    """The answers beside the requests: None where a response sender answers, or the request is to run again."""
    responses = _checked(result, requests, runtime, instance_name)
    channel = runtime.channel
    arena = channel.arena
    answers: list[tuple[Any, ...] | None] = []
    try:
        for request, response in zip(requests, responses, strict=True):
            if response is None:
                _leave_open(request, channel)
                answers.append(None)
            else:
                answers.append(encode_response(response, arena, request._message[3]))
    except BaseException:
        _withdraw(answers, arena)
        raise
    return answers


def _checked(
    result: Any, requests: list[InferenceRequest], runtime: Runtime, instance_name: str
) -> list[InferenceResponse | None]:
    if result is None:
        return [None] * len(requests)
    if runtime.is_decoupled:
        raise ModelReturnError(
            f"Python model '{instance_name}' is using the decoupled mode and the execute function must return None."
        )
    if not isinstance(result, list):
        raise ModelReturnError(f"Expected a list in the execute return, found type '{type(result)}'.")
    if len(result) != len(requests):
        raise ModelReturnError(
            "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
            f"InferenceRequest(s) size is:{len(requests)}, and InferenceResponse(s) size is:{len(result)}\n"
        )
    for request, response in zip(requests, result, strict=True):
        if response is None:
            continue
        if request._release_flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE:
            raise ModelReturnError(
                "Expected a None object in the execute function return list for reschduled request, found type "
                f"'{type(response)}'."
            )
        if not isinstance(response, InferenceResponse):
            raise ModelReturnError(
                "Expected an 'InferenceResponse' object in the execute function return list, found type "
                f"'{type(response)}'."
            )
    return result


def _leave_open(request: InferenceRequest, channel: Channel) -> None:
    if request._release_flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE:
        channel.send((messages.RESCHEDULE, request._message[0]))
        if request._sender is not None:
            request._sender.abandon()
    else:
        request.get_response_sender()  # answers when it goes, if the model has not kept it


def _withdraw(answers: list[tuple[Any, ...] | None], arena: Arena | None) -> None:
    """Takes back the memory of answers that are not sent."""
    for answer in answers:
        for tensor in answer[0] if answer is not None else ():
            if arena is not None and type(tensor[3]) is tuple:
                arena.release(tensor[3][0], tensor[3][1])
