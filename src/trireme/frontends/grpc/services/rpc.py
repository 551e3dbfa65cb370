"""A unary RPC as a function from request message to response message, awaited where it has to wait."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError

from trireme.access.actor import acting
from trireme.core.elements import Buffer
from trireme.core.errors import InternalError, InvalidArgumentError, ServingError
from trireme.frontends.grpc.plan import CallPlan, Method
from trireme.frontends.grpc.unary import UnaryCall
from trireme.protocol.http2.stream import Stream
from trireme.protocol.v2.grpc_long_request import check_fields

if TYPE_CHECKING:
    from trireme.frontends.grpc.ports import Connection

Rpc = Callable[[Any, Any], Any]
"""Server and request message to response message, or to an awaitable of it; raises ServingError."""

INFERENCE_SERVICE: Final = "inference.GRPCInferenceService"
MAX_CONTROL_BYTES: Final = 1 << 20
"""The message of a call that asks for something small: the index, statistics, settings."""


class RpcCall(UnaryCall):
    """One call of such a function."""

    __slots__ = ("_parse", "_rpc")

    def __init__(
        self, connection: Connection, stream: Stream, plan: CallPlan, parse_message: Callable[[Buffer], Any], rpc: Rpc
    ) -> None:
        super().__init__(connection, stream, plan)
        self._parse = parse_message
        self._rpc = rpc

    def handle(self, message: Buffer) -> None:
        if len(message) > MAX_CONTROL_BYTES:
            self.ordered_work().compute(partial(self._parse, message), self._ask)
        else:
            self._ask(self._parse(message))

    def _ask(self, request: Any) -> None:
        self.note_read()
        if self.tracked is None:
            self._call(request)
        else:
            self.tracked.model = _model_of(request)
            with acting(self.tracked.actor):
                self._call(request)

    def _call(self, request: Any) -> None:
        response = self._rpc(self.context.server, request)
        if inspect.isawaitable(response):
            # A client that leaves does not undo what it began: a load goes on to its end.
            self.context.run(self._answer_later(response))
        else:
            self._answer(response)

    async def _answer_later(self, response: Awaitable[Any]) -> None:
        try:
            self._answer(await response)
        except ServingError as error:
            self.fail(error)
        except Exception as error:
            self._fail_unexpectedly(error)

    def _answer(self, response: Any) -> None:
        encoded = response.SerializeToString()
        self.reply([encoded], len(encoded))


def _model_of(request: Any) -> str:
    """The model that a request is about, for the access log; regions of shared memory have names, too."""
    name = getattr(request, "model_name", "") or getattr(request, "name", "")
    return "" if "SharedMemory" in type(request).__name__ else str(name)


def parse(message_class: Any, message: Buffer) -> Any:
    """A small message; raises ServingError where the bytes are none or too many."""
    if len(message) > MAX_CONTROL_BYTES:
        raise InvalidArgumentError(
            f"the message has {len(message)} bytes; such a call takes no more than {MAX_CONTROL_BYTES} bytes"
        )
    return _parse(message_class, message)


def parse_large(message_class: Any, message: Buffer) -> Any:
    """A message of any size, with no more fields than a request may have; raises ServingError."""
    check_fields(message)
    return _parse(message_class, message)


def _parse(message_class: Any, message: Buffer) -> Any:
    try:
        return message_class.FromString(bytes(message))
    except DecodeError:
        raise InternalError("Unable to parse request") from None


def unary(path: str, protocol: str, request_class: Any, rpc: Rpc, *, is_large: bool = False) -> Method:
    """The method that serves this function; with `is_large` its messages may have any size."""
    parse_message = partial(parse_large if is_large else parse, request_class)

    def open_call(connection: Connection, stream: Stream, plan: CallPlan) -> RpcCall:
        return RpcCall(connection, stream, plan, parse_message, rpc)

    return Method(path.encode(), protocol, open_call)
