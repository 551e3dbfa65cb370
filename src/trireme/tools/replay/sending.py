"""Sends recorded calls again, over connections that are kept, and takes the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from trireme.core.recorded_call import RecordedCall
from trireme.tools.client.errors import AnswerError, ClientError, UnreachableError
from trireme.tools.client.messages import InferAnswer, InferCall
from trireme.tools.replay.kept_clients import KeptClient


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered to one call, and how long that took."""

    answers: tuple[InferAnswer, ...]
    took_ns: int
    first_ns: int
    """To the first response."""
    error: str | None = None
    is_unreachable: bool = False


def send(client: KeptClient, call: InferCall, is_stream: bool, clock: Callable[[], int] = time.monotonic_ns) -> Reply:
    """One call; an error is part of the reply, and so is an answer that nobody can read."""
    client.kept.warm_up()
    began_ns = clock()
    first_ns = 0
    answers: list[InferAnswer] = []
    error: ClientError | None = None
    try:
        for answer in client.stream(call) if is_stream else (client.infer(call),):
            first_ns = first_ns or clock() - began_ns
            answers.append(answer)
    except ClientError as failure:
        error = failure
    except Exception as failure:  # whatever a decoder makes of what another kind of server sends
        error = AnswerError(f"the answer cannot be read: {type(failure).__name__}: {failure}")
    took_ns = clock() - began_ns
    told = None if error is None else str(error)
    return Reply(tuple(answers), took_ns, first_ns or took_ns, told, isinstance(error, UnreachableError))


def call_again(call: RecordedCall, model: str, version: str | None) -> InferCall:
    """The request as it is sent now; what lay in shared memory is sent along."""
    parameters = dict(call.parameters)
    if call.correlation_id:
        parameters |= {
            "sequence_id": call.correlation_id,
            "sequence_start": call.is_start,
            "sequence_end": call.is_end,
        }
    parameters |= {"priority": call.priority} if call.priority else {}
    parameters |= {"timeout": call.timeout_us} if call.timeout_us else {}
    outputs = tuple(call.outputs) or tuple(call.class_counts)
    return InferCall(
        model,
        call.version if version is None else version,
        tuple(call.inputs),
        parameters,
        outputs,
        call.class_counts,
        call.request_id,
    )
