"""Sends recorded calls again, over connections that are kept, and takes the time."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from trireme.core.recorded_call import RecordedCall
from trireme.tools.client.errors import AnswerError, ClientError, UnreachableError
from trireme.tools.client.grpc_client import GrpcClient, GrpcConnection
from trireme.tools.client.http_client import HttpClient
from trireme.tools.client.messages import InferAnswer, InferCall

_FRESH_S = 3.0
"""A connection that was idle for longer may have been closed by the server meanwhile."""


class KeptHttpClient(HttpClient):
    """The same client with one connection, for one thread."""

    _kept: tuple[http.client.HTTPConnection, float] | None = None

    @contextmanager
    def borrowed(self) -> Iterator[http.client.HTTPConnection]:
        """The connection of the exchange before, as long as that was in order and not long ago."""
        kept, self._kept = self._kept, None
        if kept is not None and time.monotonic() - kept[1] > _FRESH_S:
            kept[0].close()
            kept = None
        connection = self.open_connection() if kept is None else kept[0]
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self._kept = connection, time.monotonic()

    def warm_up(self) -> None:
        """Connects, so that no request is charged for it; a failure is left to the request."""
        try:
            if self._kept is None:
                connection = self.open_connection()
                connection.connect()
                self._kept = connection, time.monotonic()
        except OSError:
            pass

    def close(self) -> None:
        if self._kept is not None:
            self._kept[0].close()


class KeptGrpcClient(GrpcClient):
    """The same over gRPC."""

    _kept: tuple[GrpcConnection, float] | None = None

    @contextmanager
    def borrowed(self) -> Iterator[GrpcConnection]:
        """The connection of the call before, as long as the server wants calls on it."""
        kept, self._kept = self._kept, None
        if kept is not None and (kept[0].is_leaving or time.monotonic() - kept[1] > _FRESH_S):
            kept[0].close()
            kept = None
        connection = self.open_connection() if kept is None else kept[0]
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if connection.is_leaving:
            connection.close()
        else:
            self._kept = connection, time.monotonic()

    def warm_up(self) -> None:
        """The same."""
        try:
            if self._kept is None:
                self._kept = self.open_connection(), time.monotonic()
        except OSError:
            pass

    def close(self) -> None:
        if self._kept is not None:
            self._kept[0].close()


KeptClient = KeptHttpClient | KeptGrpcClient


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
    client.warm_up()
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
