"""A `tritonserver` process on free ports, as tests start it, ask it and end it."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from free_ports import free_ports
from waiting import pause

START_S = 200.0
"""A server that imports frameworks on a machine that does much else takes this long, one that hangs longer."""
_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class RunningServer:
    """`tritonserver --model-repository=model_repository`, typed in the folder that holds it."""

    _connections: tuple[http.client.HTTPConnection, ...] = ()
    _leads_a_process_group = False

    def __init__(self, folder: Path, *flags: str) -> None:
        self.ports = three_ports()
        command = [str(Path(sys.executable).with_name("tritonserver")), "--model-repository=model_repository", *flags]
        self._start(folder, [*command, *port_flags(self.ports)])

    def _start(self, folder: Path, command: Sequence[str] | str, **variables: str) -> None:
        """Runs the command in the folder, a text in a shell, with a log beside it."""
        self.log_path = folder / "server.log"
        environment, is_shell = {**os.environ, **variables}, isinstance(command, str)
        with self.log_path.open("w") as log:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                shell=is_shell,
                start_new_session=self._leads_a_process_group,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        for connection in self._connections:
            connection.close()

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def wait_until_listening(self, timeout_s: float = START_S) -> None:
        deadline = time.monotonic() + timeout_s
        while "Started Metrics Service" not in self.log:
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.05)

    def wait_until_ready(self, timeout_s: float = START_S) -> None:
        """Until every model that is loaded at the start can be asked."""
        self.until(self._is_ready, timeout_s)

    def _is_ready(self) -> bool:
        try:
            return self.status("/v2/health/ready") == 200
        except OSError:  # it does not listen yet
            return False

    def connect(self) -> http.client.HTTPConnection:
        """A connection that is closed with the server at the latest."""
        connection = self._connection("http")
        self._connections = (*self._connections, connection)
        return connection

    def _connection(self, port: str) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.ports[port], timeout=30)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, str], bytes]:
        with closing(self._connection("http")) as connection:
            return exchange(connection, method, path, body)

    def status(self, path: str) -> int:
        return self.ask("GET", path)[0]

    def infer(self, model: str, *values: int, request_id: str = "") -> tuple[int, dict[str, Any]]:
        """One request with an INT32 input IN of these values; status and answer."""
        status, _, body = self.ask("POST", f"/v2/models/{model}/infer", int_request(*values, request_id=request_id))
        return status, json.loads(body)

    def index(self) -> dict[str, dict[str, str]]:
        return {entry["name"]: entry for entry in json.loads(self.ask("POST", "/v2/repository/index")[2])}

    def statistics(self, model: str) -> dict[str, Any]:
        (entry,) = json.loads(self.ask("GET", f"/v2/models/{model}/stats")[2])["model_stats"]
        return dict(entry)

    def metrics_page(self) -> str:
        with closing(self._connection("metrics")) as connection:
            return exchange(connection, "GET", "/metrics")[2].decode()

    def metric(self, name: str, **labels: str) -> dict[tuple[tuple[str, str], ...], float]:
        """The samples of this name that have these labels, by their other labels."""
        found = {}
        for line in self.metrics_page().splitlines():
            match = _SAMPLE.fullmatch(line)
            if match is None or match[1] != name:
                continue
            present = dict(_LABEL.findall(match[2] or ""))
            if labels.items() <= present.items():
                found[tuple((key, present[key]) for key in present if key not in labels)] = float(match[3])
        return found

    def value(self, name: str, **labels: str) -> float:
        """The one sample with exactly these labels."""
        return self.metric(name, **labels)[()]

    def until(self, condition: Callable[[], object], timeout_s: float = 20) -> float:
        """Waits; the seconds it took."""
        began = time.monotonic()
        while not condition():
            waited_s = time.monotonic() - began
            assert self.process.poll() is None, self.log
            assert waited_s < timeout_s, self.log
            pause(waited_s)
        return time.monotonic() - began

    def until_ready(self, model: str) -> float:
        return self.until(lambda: self.status(f"/v2/models/{model}/ready") == 200)

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(20)

    def children(self) -> list[int]:
        """The worker processes."""
        return self._children_called("trireme-worker")

    def fork_server(self) -> int:
        """The process that forks workers, once it is there."""
        self.until(lambda: self._children_called("trireme-forker"))
        (found,) = self._children_called("trireme-forker")
        return found

    def _children_called(self, name: str) -> list[int]:
        listing = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        found = []
        for child in listing.read_text().split():
            with suppress(OSError):  # it has ended meanwhile
                if Path(f"/proc/{child}/comm").read_text() == f"{name}\n":
                    found.append(int(child))
        return found


def three_ports() -> dict[str, int]:
    """A free port for each of the server's listeners, by its name."""
    return dict(zip(("http", "grpc", "metrics"), free_ports(3), strict=True))


def port_flags(ports: dict[str, int]) -> list[str]:
    """The flags that have the server listen there, and nowhere else."""
    flags = [f"--{kind}-port={port}" for kind, port in ports.items()]
    return flags + [f"--{kind}-address=127.0.0.1" for kind in ports]


def exchange(
    connection: http.client.HTTPConnection, method: str, path: str, body: object = None
) -> tuple[int, dict[str, str], bytes]:
    content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    # curl -d says so, and the server reads JSON all the same.
    connection.request(method, path, content, {"Content-Type": "application/x-www-form-urlencoded"})
    response = connection.getresponse()
    return response.status, dict(response.headers.items()), response.read()


def int_request(*values: int, request_id: str = "") -> dict[str, object]:
    tensor = {"name": "IN", "datatype": "INT32", "shape": [1, len(values)], "data": list(values)}
    return {"id": request_id, "inputs": [tensor]}


INT_CONFIG = """backend: "python"
max_batch_size: 8
input [{ name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }]
output [{ name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] }]
"""


def write_model(folder: Path, name: str, code: str, config: str = INT_CONFIG) -> Path:
    """A model in the repository of this folder; its directory."""
    model = folder / "model_repository" / name
    (model / "1").mkdir(parents=True, exist_ok=True)
    (model / "config.pbtxt").write_text(config)
    (model / "1" / "model.py").write_text(code)
    return model


def write_ensemble(
    folder: Path,
    name: str,
    steps: Iterable[tuple[str, str, str]],
    outputs: Sequence[str] = ("OUT",),
    *,
    is_decoupled: bool = False,
    max_inflight: int = 0,
) -> None:
    """An ensemble of models with one input IN and one output OUT; a step: the model, what it reads, what it makes."""
    tensor = '{{ name: "{}" data_type: TYPE_INT32 dims: [ -1 ] }}'.format
    lines = [
        f'{{ model_name: "{model}" model_version: -1 input_map {{ key: "IN" value: "{given}" }} '
        f'output_map {{ key: "OUT" value: "{made}" }} }}'
        for model, given, made in steps
    ]
    model_dir = folder / "model_repository" / name
    (model_dir / "1").mkdir(parents=True)
    (model_dir / "config.pbtxt").write_text(
        f'platform: "ensemble"\nmax_batch_size: 1\ninput [{tensor("IN")}]\noutput [{", ".join(map(tensor, outputs))}]\n'
        f"model_transaction_policy {{ decoupled: {str(is_decoupled).lower()} }}\n"
        f"ensemble_scheduling {{ max_inflight_requests: {max_inflight} step [ {', '.join(lines)} ] }}\n"
    )
