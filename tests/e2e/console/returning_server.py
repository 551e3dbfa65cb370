"""A server that comes back at the ports where another one was."""

from __future__ import annotations

import sys
from pathlib import Path

from running_server import RunningServer, port_flags


class ServerAt(RunningServer):
    """One that listens where another one did."""

    def __init__(self, folder: Path, ports: dict[str, int]) -> None:
        self.ports = ports
        command = [str(Path(sys.executable).with_name("tritonserver")), "--model-repository=model_repository"]
        self._start(folder, [*command, *port_flags(ports)])
