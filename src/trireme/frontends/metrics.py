"""The metrics port: the page that Prometheus reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trireme.access.gate import Gate
from trireme.access.groups import METRICS
from trireme.frontends.connection_slots import SharedLimits
from trireme.frontends.http import answers
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.guard import Guard
from trireme.frontends.http.head import Endpoint, HeadReader, RequestHead
from trireme.frontends.http.listener import Listener
from trireme.frontends.http.options import MetricsFrontendOptions

if TYPE_CHECKING:
    from trireme.server.server import InferenceServer


class MetricsFrontend:
    """`GET /metrics` is the page; other paths are empty, other methods are refused."""

    def __init__(
        self,
        server: InferenceServer,
        options: MetricsFrontendOptions,
        gate: Gate | None = None,
        shared: SharedLimits | None = None,
    ) -> None:
        self._server = server
        self._guard = Guard(gate or Gate())
        self._options = options
        self._endpoint = Endpoint("health", self.answer, is_plain=True, reads_body=False)
        self.listener = Listener(HeadReader(self._resolve), options.limits, options.tls, shared, gate)

    @property
    def port(self) -> int:
        """The port it listens on, once started."""
        return self.listener.port

    @property
    def connection_count(self) -> int:
        """Connections on which a request is under way."""
        return self.listener.busy_count

    async def start(self) -> None:
        """Listens; raises UnavailableError where the port is taken."""
        await self.listener.start(self._options.address, self._options.port, self._options.reuse_port)

    def stop_accepting(self) -> None:
        """Takes no further connection; the open ones are answered on."""
        self.listener.stop_accepting()

    async def close(self, grace_s: float = 0.0, sending_s: float = 0.0) -> None:
        """Waits so long for requests under way, and then for clients to read their answers; ends every connection."""
        await self.listener.close(grace_s, sending_s)

    def answer(self, exchange: Exchange) -> None:
        """Any request on the port."""
        head = exchange.head
        if head.method != "GET":
            exchange.send(answers.plain_error(head, 405, "Method Not Allowed"))
            return
        page = self._server.statistics.metrics_page() if head.path == "/metrics" else b""
        exchange.send(answers.typed(head, 200, page, answers.METRICS_TEXT))

    def _resolve(self, head: RequestHead) -> None:
        head.endpoint = self._guard.guarded(head, self._endpoint, METRICS)
