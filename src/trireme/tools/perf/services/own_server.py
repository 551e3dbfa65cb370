"""A server of this installation for one measurement, in place of one that is loaded into the process by its C API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import quote

from trireme.tools.child_server import LOOPBACK, SERVICES, ChildServer, ChildServerError
from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.options import PerfOptions
from trireme.tools.perf.wire.http1_responses import error_text

_START_S = 120.0
_LOAD_S = 3600.0
_PREFIX = "error: failed to create triton client backend: "


@contextmanager
def serving(options: PerfOptions) -> Iterator[PerfOptions]:
    """Serves the one model of --model-repository that is measured, and ends the server; the options with its address.

    Raises PerfError where it does not come up.
    """
    repository = Path(options.model_repository)
    if not repository.is_dir():
        raise PerfError(f"{_PREFIX}Unable to find filepath: {repository}\n")
    flags = ["--model-control-mode=explicit", "--allow-client-shm=true"]
    with ChildServer("trireme-perf-") as server:
        # Ctrl+C is for the measurement, which then ends the server.
        server.start(repository, flags, has_own_session=True, ports=dict.fromkeys(SERVICES))
        try:
            server.wait(_START_S, path="/v2/health/live")
        except ChildServerError as error:
            raise PerfError(
                f"{_PREFIX}{error}, which was started for the measurement:\n{server.log_tail()}\n"
            ) from None
        _load(server.port, options.model_name)
        yield replace(
            options,
            url=f"{LOOPBACK}:{server.ports[options.protocol]}",
            metrics=replace(options.metrics, url=f"{LOOPBACK}:{server.ports['metrics']}/metrics"),
        )


def _load(port: int, model: str) -> None:
    """Raises PerfError with the server's reason."""
    connection = HTTPConnection(LOOPBACK, port, timeout=_LOAD_S)
    try:
        connection.request("POST", f"/v2/repository/models/{quote(model, safe='')}/load")
        answer = connection.getresponse()
        content = answer.read()
    except (OSError, HTTPException) as error:
        raise PerfError(f"{_PREFIX}the server ended while it loaded '{model}': {error}\n") from None
    finally:
        connection.close()
    if answer.status != 200:
        raise PerfError(f"{_PREFIX}{error_text(answer.status, content)}\n")
