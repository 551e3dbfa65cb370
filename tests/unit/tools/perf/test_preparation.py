"""A load that cannot be prepared to its end leaves no region of shared memory, neither here nor in the server."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from trireme.tools.perf import preparation
from trireme.tools.perf.control.port import ServerCalls
from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.model import ModelDescription, TensorSpec
from trireme.tools.perf.options import InputOptions, PerfOptions

MODEL = ModelDescription("m", "", 8, (TensorSpec("A", "FP32", (4,)), TensorSpec("B", "FP32", (4,))), ())
OPTIONS = PerfOptions("m", inputs=InputOptions(shared_memory="system"))


class Server:
    """Knows regions, until it has enough of them."""

    def __init__(self, url: str, most: int = 9) -> None:
        self._options = replace(OPTIONS, url=url)
        self._most = most
        self.regions: list[str] = []
        self.asked: list[str] = []

    def register_region(self, name: str, key: str, size_bytes: int) -> None:
        self.asked.append(name)
        if len(self.regions) == self._most:
            raise PerfError("too many regions")
        self.regions.append(name)

    def unregister_region(self, name: str) -> None:
        if name not in self.regions:
            raise PerfError("no such region")
        self.regions.remove(name)

    def prepare(self) -> preparation.PreparedLoad:
        return preparation.prepare_load(self._options, MODEL, cast(ServerCalls, self))

    @property
    def files(self) -> list[str]:
        return [name for name in self.asked if (Path("/dev/shm") / name).exists()]


@pytest.fixture
def url() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def test_regions_stay_for_the_run_and_go_with_it(url: str) -> None:
    server = Server(url)
    prepared = server.prepare()
    assert prepared.regions is not None
    assert len(server.regions) == len(server.files) == 2
    prepared.regions.remove()
    assert server.regions == server.files == []


def test_a_server_that_refuses_the_second_region_keeps_none(url: str) -> None:
    server = Server(url, most=1)
    with pytest.raises(PerfError, match="failed to register shared memory region: too many regions"):
        server.prepare()
    assert len(server.asked) == 2
    assert server.regions == server.files == []


def test_regions_go_where_nobody_listens_for_the_load() -> None:
    server = Server("127.0.0.1:9")
    with pytest.raises(PerfError, match=r"failed to connect to 127\.0\.0\.1:9"):
        server.prepare()
    assert len(server.asked) == 2
    assert server.regions == server.files == []


def test_regions_go_where_the_user_ends_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(preparation, "server_endpoint", interrupt)
    server = Server(url)
    with pytest.raises(KeyboardInterrupt):
        server.prepare()
    assert len(server.asked) == 2
    assert server.regions == server.files == []
