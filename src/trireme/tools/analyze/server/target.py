"""The server that is measured: one that runs, or one that is started for it; and how the load generator reaches it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from trireme.tools.analyze.options import AnalyzeOptions, ServerPlace
from trireme.tools.analyze.server.process import listening_ports, server_process
from trireme.tools.analyze.signals import Waits
from trireme.tools.child_server import LOOPBACK, SERVICES, ChildServer, ChildServerError, ServerProgram
from trireme.tools.client.connect import GRPC_PORT, HTTP_PORT, TLS_SCHEMES, ConnectionOptions, connect
from trireme.tools.client.errors import InputError, UnreachableError
from trireme.tools.client.port import ServerClient
from trireme.tools.perf.address import parse_address
from trireme.tools.perf.errors import PerfError

_METRICS_PORT = 8002
_START_S = 120.0
_QUICK_S = 2.0
_ANYWHERE = "0.0.0.0"


@dataclass(frozen=True, slots=True)
class Target:
    """Where everything is."""

    client: ServerClient
    quick_client: ServerClient
    """Gives up soon; for questions that a server answers at once."""
    place: ServerPlace
    http_url: str
    grpc_url: str
    metrics_url: str
    local_id: int | None = None
    """The process of a server that was started for the analysis."""

    def process_id(self) -> int | None:
        """Of the server, where it is on this machine and may be looked at."""
        if self.local_id is not None:
            return self.local_id
        url, port = (self.grpc_url, GRPC_PORT) if self.place.protocol == "grpc" else (self.http_url, HTTP_PORT)
        try:
            address = parse_address(url, port)
        except PerfError:
            return None
        return server_process(address.host, address.port)

    def metrics_urls(self, process_id: int | None) -> list[str]:
        """Where the page of metrics may be: where the user says, or at a port of the server's process, or at the usual
        one where that is not known."""
        if self.is_metrics_url_given or process_id is None:
            return [self.metrics_url]
        usual = parse_address(self.metrics_url, _METRICS_PORT)
        asked = {
            parse_address(url, port).port for url, port in ((self.http_url, HTTP_PORT), (self.grpc_url, GRPC_PORT))
        }
        ports = [port for port in listening_ports(process_id) if port not in asked]
        return [f"{replace(usual, port=port).authority}/metrics" for port in ports]

    @property
    def is_metrics_url_given(self) -> bool:
        """Or chosen by us, for a server that was started for the analysis."""
        return self.place.metrics_url is not None or self.local_id is not None

    @property
    def metrics_headers(self) -> tuple[tuple[str, str], ...]:
        """The page of metrics is read without TLS: a key that goes to the server behind TLS is not sent there."""
        url = self.grpc_url if self.place.protocol == "grpc" else self.http_url
        return () if url.startswith(TLS_SCHEMES) else self.place.headers

    def load_words(self, is_language_model: bool) -> tuple[str, ...]:
        """The words that tell the load generator where the server is."""
        place = self.place
        headers = [word for name, value in place.headers for word in ("-H", f"{name}:{value}")]
        trusted = () if place.ca_file is None else (place.ca_file,)
        if is_language_model:
            return ("-u", self.grpc_url, *headers, *(word for file in trusted for word in ("--ca", file)))
        url = self.grpc_url if place.protocol == "grpc" else self.http_url
        flag = f"--ssl-{'grpc-root-certifications' if place.protocol == 'grpc' else 'https-ca-certificates'}-file"
        return ("-i", place.protocol, "-u", url, *headers, *(word for file in trusted for word in (flag, file)))

    def abandon(self) -> None:
        """From another process, when this one is gone: a server that was started for the analysis ends."""
        if self.local_id is not None:
            os.kill(self.local_id, signal.SIGTERM)


@contextmanager
def open_target(options: AnalyzeOptions, waits: Waits) -> Iterator[Target]:
    """Starts a server where there is to be one of our own, and ends it, whatever happens while it starts; raises
    ClientError."""
    place = options.place
    if place.launch_mode != "local":
        yield _target(place, _running(place), None)
        return
    program = ServerProgram(environment=place.environment, log_file=Path(place.log_file) if place.log_file else None)
    if place.program is not None:
        program = ServerProgram((place.program,), program.environment, program.log_file)
    with ChildServer("trireme-analyze-", program) as server:
        _start(server, options, waits)
        urls = {service: f"{LOOPBACK}:{port}" for service, port in server.ports.items()}
        yield _target(place, {**urls, **_given(place)}, server.process_id)


def _start(server: ChildServer, options: AnalyzeOptions, waits: Waits) -> None:
    place, repository = options.place, Path(options.repository or "")
    if not repository.is_dir():
        raise InputError(f"there is no model repository '{repository}'")
    ports = {service: _port(url) for service, url in _given(place).items()}
    try:
        # Ctrl+C is for the analysis, which then stops the server.
        server.start(repository, _flags(place), has_own_session=True, ports={**dict.fromkeys(SERVICES), **ports})
    except OSError as error:
        raise InputError(f"'{error.filename or place.program}' cannot be used: {error.strerror or error}") from None
    try:
        with waits():
            server.wait(_START_S, path="/v2/health/live", headers=dict(place.headers))
    except ChildServerError as error:
        raise UnreachableError(f"{error}, which was started for the analysis:\n{server.log_tail()}") from None


def _flags(place: ServerPlace) -> list[str]:
    """The user's, but for what the analysis itself decides."""
    usual = {f"{service}-address": _ANYWHERE for service, url in _given(place).items() if not _is_here(url)}
    given = {name.replace("_", "-"): value for name, value in place.flags.items()}
    decided = ("model-repository", "model-store", *(f"{service}-port" for service in SERVICES))
    found = {name: value for name, value in {**usual, **given}.items() if name not in decided}
    return [f"--{name}={value}" for name, value in {**found, "model-control-mode": "explicit"}.items()]


def _given(place: ServerPlace) -> dict[str, str]:
    """The addresses that the user has chosen, by service."""
    urls = {"http": place.http_url, "grpc": place.grpc_url, "metrics": place.metrics_url}
    return {service: url for service, url in urls.items() if url is not None}


def _running(place: ServerPlace) -> dict[str, str]:
    """Those of a server that runs; metrics are where the client protocol is, unless said otherwise."""
    urls = {"http": f"localhost:{HTTP_PORT}", "grpc": f"localhost:{GRPC_PORT}", **_given(place)}
    try:
        address = parse_address(urls[place.protocol], _METRICS_PORT)
    except PerfError as error:
        raise InputError(str(error)) from None
    return {"metrics": f"{replace(address, port=_METRICS_PORT).authority}/metrics", **urls}


def _target(place: ServerPlace, urls: Mapping[str, str], local_id: int | None) -> Target:
    is_grpc = place.protocol == "grpc" and local_id is None
    url = urls["grpc" if is_grpc else "http"]
    patient, quick = (
        connect(ConnectionOptions(url, is_grpc, place.headers, timeout_s, place.ca_file))
        for timeout_s in (ConnectionOptions().timeout_s, _QUICK_S)
    )
    metrics_url = urls["metrics"].removeprefix("http://")
    return Target(patient, quick, place, urls["http"], urls["grpc"], metrics_url, local_id)


def _is_here(url: str) -> bool:
    """Whether the address is one that only this machine reaches."""
    return _authority(url).rpartition(":")[0] in ("", "localhost", LOOPBACK)


def _port(url: str) -> int:
    port = _authority(url).rpartition(":")[2]
    if not port.isdigit():
        raise InputError(f"'{url}' has no port: say localhost:8000")
    return int(port)


def _authority(url: str) -> str:
    return url.rpartition("//")[2].partition("/")[0]
