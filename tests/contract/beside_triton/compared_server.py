"""A server of either kind, ours or a real Triton, with the same flags and the same questions."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc
from running_server import RunningServer, port_flags, three_ports

REAL = os.environ.get("REAL_TRITONSERVER", "")
"""The path of a real Triton's command; empty where there is none."""
OURS = str(Path(sys.executable).with_name("tritonserver"))


class ComparedServer(RunningServer):
    """Serves the folder `model_repository`."""

    def __init__(self, folder: Path, command: str, flags: tuple[str, ...], variables: dict[str, str]) -> None:
        self.is_ours = command == OURS
        self.ports = three_ports()
        words = [command, "--model-repository=model_repository", *flags, *port_flags(self.ports)]
        if not self.is_ours:  # names of shared memory are its process ids, and one that was killed leaves them behind
            words.append(f"--backend-config=python,shm-region-prefix-name=compared-{self.ports['http']}-")
        self._start(folder, words, **variables)

    def __exit__(self, *ending: Any) -> None:
        if not self.is_ours and self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(60)
        super().__exit__(*ending)

    def client(self) -> Any:
        """The official one, over gRPC."""
        return tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{self.ports['grpc']}")

    def load(self, model: str, config: str | None = None) -> int:
        """The status of a load, with a configuration in the request where one is given."""
        body = {} if config is None else {"parameters": {"config": config}}
        return self.ask("POST", f"/v2/repository/models/{model}/load", body)[0]


Starter = Callable[..., ComparedServer]


def tensor(name: str, values: np.ndarray, datatype: str = "INT32") -> Any:
    """An input of the gRPC client."""
    entry = tritonclient.grpc.InferInput(name, list(values.shape), datatype)
    entry.set_data_from_numpy(values)
    return entry
