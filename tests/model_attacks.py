"""What models do by mistake that a server has to survive: they write without end, fail in odd ways, or never load."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import closing

from attacks import Attack, Ports
from connection_attacks import NotServedError


def noisy_model(ports: Ports, size_bytes: int = 4_000_000) -> int:
    """A model that writes so many line ends."""
    _infer(ports, "noisy", size_bytes)
    return 0


def odd_failures(ports: Ports) -> int:
    """Exceptions that cannot be told, or that mean something else to the interpreter; the model goes on."""
    for number in range(4):
        status = _infer(ports, "failing", number)
        if status < 400:
            raise NotServedError
    if _infer(ports, "failing", 99) != 200:
        raise NotServedError
    return 0


def hanging_load(ports: Ports) -> int:
    """A model that never ends to load, for a client that does not wait; another one loads meanwhile."""

    def load() -> None:
        with contextlib.suppress(OSError), _connection(ports, 2) as connection:
            connection.request("POST", "/v2/repository/models/hanging/load")
            connection.getresponse()

    thread = threading.Thread(target=load)
    thread.start()
    try:
        with _connection(ports, 30) as connection:
            connection.request("POST", "/v2/repository/models/late/load")
            if connection.getresponse().status != 200:
                raise NotServedError
    except OSError as error:
        raise NotServedError from error
    finally:
        thread.join()
    return 0


def _infer(ports: Ports, model: str, value: int) -> int:
    """The status; also of a client that waits in vain."""
    tensor = {"name": "IN", "datatype": "INT32", "shape": [1], "data": [value]}
    with _connection(ports, 120) as connection:
        connection.request("POST", f"/v2/models/{model}/infer", json.dumps({"inputs": [tensor]}))
        answer = connection.getresponse()
        answer.read()
        return answer.status


@contextlib.contextmanager
def _connection(ports: Ports, timeout_s: float) -> Iterator[http.client.HTTPConnection]:
    with closing(http.client.HTTPConnection("127.0.0.1", ports.http, timeout=timeout_s)) as connection:
        yield connection


MODEL_ATTACKS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (
        noisy_model,
        odd_failures,
        hanging_load,
    )
}
