"""The HTTP front end: every endpoint of the protocol behind one listener."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trireme.access.gate import Gate
from trireme.frontends.connection_slots import SharedLimits
from trireme.frontends.http.background import BackgroundAnswers
from trireme.frontends.http.endpoints.generation import GenerateEndpoints
from trireme.frontends.http.endpoints.health import HealthEndpoints
from trireme.frontends.http.endpoints.inference import InferEndpoint
from trireme.frontends.http.endpoints.metadata import MetadataEndpoints
from trireme.frontends.http.endpoints.openai.api import PREFIX, openai_refusal, openai_routes
from trireme.frontends.http.endpoints.recording import RecordingEndpoints
from trireme.frontends.http.endpoints.repository import RepositoryEndpoints
from trireme.frontends.http.endpoints.settings import SettingsEndpoints
from trireme.frontends.http.endpoints.shared_memory import SharedMemoryEndpoints
from trireme.frontends.http.guard import Guard
from trireme.frontends.http.head import HeadReader
from trireme.frontends.http.listener import Listener
from trireme.frontends.http.mistaken_paths import PREFIX as V2_PREFIX
from trireme.frontends.http.mistaken_paths import v2_refusal
from trireme.frontends.http.openapi.endpoint import openapi_route
from trireme.frontends.http.options import HttpFrontendOptions
from trireme.frontends.http.routing import Route, Router

if TYPE_CHECKING:
    from trireme.server.server import InferenceServer


def create_listener(
    server: InferenceServer,
    options: HttpFrontendOptions,
    gate: Gate | None = None,
    shared: SharedLimits | None = None,
    more_routes: Sequence[Route] = (),
) -> Listener:
    """A listener that answers for the server, at some more paths than the protocol's; it does not listen yet."""
    routes = all_routes(server, options)
    every = [*routes, openapi_route(routes), *more_routes]
    router = Router(every, options, Guard(gate or Gate()), {PREFIX: openai_refusal, V2_PREFIX: v2_refusal})
    return Listener(HeadReader(router.resolve), options.limits, options.tls, shared, gate)


def all_routes(server: InferenceServer, options: HttpFrontendOptions) -> list[Route]:
    """Every path of the protocol, the ones asked for most first."""
    background = BackgroundAnswers()
    return [
        *InferEndpoint(server, options, background).routes(),
        *GenerateEndpoints(server, options, background).routes(),
        *openai_routes(server, options, background),
        *HealthEndpoints(server, background).routes(),
        *MetadataEndpoints(server).routes(),
        *RepositoryEndpoints(server, background).routes(),
        *SettingsEndpoints(server).routes(),
        *SharedMemoryEndpoints(server).routes(),
        *RecordingEndpoints(server, background).routes(),
    ]


class HttpFrontend:
    """Started once the server can answer, closed after it began to exit."""

    def __init__(
        self,
        server: InferenceServer,
        options: HttpFrontendOptions,
        gate: Gate | None = None,
        shared: SharedLimits | None = None,
        more_routes: Sequence[Route] = (),
    ) -> None:
        self._options = options
        self._listener = create_listener(server, options, gate, shared, more_routes)

    @property
    def port(self) -> int:
        """The port it listens on, once started."""
        return self._listener.port

    @property
    def connection_count(self) -> int:
        """Connections on which a request is under way; idle ones hold up nobody."""
        return self._listener.busy_count

    async def start(self) -> None:
        """Listens; raises UnavailableError where the port is taken."""
        await self._listener.start(self._options.address, self._options.port, self._options.reuse_port)

    def stop_accepting(self) -> None:
        """Takes no further connection; the open ones are answered on."""
        self._listener.stop_accepting()

    async def close(self, grace_s: float = 0.0, sending_s: float = 0.0) -> None:
        """Waits so long for requests under way, answers the others with an error and ends every connection, once its
        client has read what it was sent, or that took too long."""
        await self._listener.close(grace_s, sending_s)
