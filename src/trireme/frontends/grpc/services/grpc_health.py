"""grpc.health.v1: Check as orchestrators call it, and Watch, which tells when readiness changes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from trireme.core.elements import Buffer
from trireme.core.errors import ServingError
from trireme.frontends.grpc.plan import CallPlan, Method
from trireme.frontends.grpc.services.rpc import parse, unary
from trireme.frontends.grpc.streaming import StreamCall
from trireme.protocol.grpc_descriptors import HEALTH_SERVICE, ServiceDescriptors
from trireme.protocol.http2.stream import Stream

if TYPE_CHECKING:
    from trireme.frontends.grpc.ports import Connection

DESCRIPTORS: Final = ServiceDescriptors()
_REQUEST: Final = DESCRIPTORS.message("grpc.health.v1.HealthCheckRequest")
_RESPONSE: Final = DESCRIPTORS.message("grpc.health.v1.HealthCheckResponse")
_SERVING, _NOT_SERVING = 1, 2
_WATCH_INTERVAL_S: Final = 1.0


async def _check(server: Any, _: Any) -> Any:
    return _RESPONSE(status=_SERVING if await server.health.is_ready() else _NOT_SERVING)


class WatchCall(StreamCall):
    """Sends the status now and whenever it has changed."""

    __slots__ = ("_task",)

    def __init__(self, connection: Connection, stream: Stream, plan: CallPlan) -> None:
        super().__init__(connection, stream, plan)
        self._task: asyncio.Task[None] | None = None

    def message_arrived(self, message: Buffer) -> None:
        parse(_REQUEST, message)
        if self._task is None:
            self._task = self.context.run(self._watch())

    def half_closed(self) -> None:
        if self._task is None:
            self.finish()

    def _close(self) -> None:
        super()._close()
        if self._task is not None:
            self._task.cancel()

    async def _watch(self) -> None:
        last = None
        while not self.is_done:
            try:
                status = (await _check(self.context.server, None)).status
            except ServingError as error:
                self.fail(error)
                return
            if status != last:
                last = status
                encoded = _RESPONSE(status=status).SerializeToString()
                self.send([encoded], len(encoded))
            await asyncio.sleep(_WATCH_INTERVAL_S)


HEALTH_METHODS: Final = (
    unary(f"/{HEALTH_SERVICE}/Check", "health", _REQUEST, _check),
    Method(f"/{HEALTH_SERVICE}/Watch".encode(), "health", WatchCall),
)
