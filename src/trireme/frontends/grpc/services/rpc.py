"""A unary RPC as a function from request message to response message, awaited where it has to wait."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError

from trireme.access.actor import acting
from trireme.core.elements import Buffer
from trireme.core.errors import InternalError, ServingError
from trireme.frontends.grpc.plan import CallPlan, Method
from trireme.frontends.grpc.unary import UnaryCall
from trireme.protocol.http2.stream import Stream

if TYPE_CHECKING:
    from trireme.frontends.grpc.ports import Connection

Rpc = Callable[[Any, Any], Any]
"""Server and request message to response message, or to an awaitable of it; raises ServingError."""

INFERENCE_SERVICE: Final = "inference.GRPCInferenceService"


class RpcCall(UnaryCall):
    """One call of such a function."""

    __slots__ = ("_request_class", "_rpc")

    def __init__(self, connection: Connection, stream: Stream, plan: CallPlan, request_class: Any, rpc: Rpc) -> None:
        super().__init__(connection, stream, plan)
        self._request_class = request_class
        self._rpc = rpc

    def handle(self, message: Buffer) -> None:
        request = parse(self._request_class, message)
        if self.visit is None:
            self._call(request)
        else:
            self.visit.model = _model_of(request)
            with acting(self.visit.actor):
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
    """The message; raises ServingError where the bytes are none."""
    try:
        return message_class.FromString(bytes(message))
    except DecodeError:
        raise InternalError("Unable to parse request") from None


def unary(path: str, protocol: str, request_class: Any, rpc: Rpc) -> Method:
    """The method that serves this function."""

    def open_call(connection: Connection, stream: Stream, plan: CallPlan) -> RpcCall:
        return RpcCall(connection, stream, plan, request_class, rpc)

    return Method(path.encode(), protocol, open_call)
