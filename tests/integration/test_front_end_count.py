"""The front-end processes that the options and the models ask for, on a machine of another size."""

from __future__ import annotations

import asyncio
import logging
import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trireme.app import front_ends
from trireme.config.model_config import InstanceGroupConfig
from trireme.config.options.parser import parse_options
from trireme.frontends.connection_slots import ConnectionSlots
from trireme.frontends.processes.starter import start_starter
from trireme.observe.recent.requests import RecentRequests


def _wait_for_the_end(sock: socket.socket, side: socket.socket) -> None:
    while sock.recv(4096):
        pass


def _config(instance_count: int, *, is_decoupled: bool = False, backend: str = "python") -> SimpleNamespace:
    return SimpleNamespace(
        instance_groups=(InstanceGroupConfig("some", "KIND_CPU", instance_count),) if instance_count else (),
        backend=backend,
        sequence_batching=None,
        dynamic_batching=None,
        is_decoupled=is_decoupled,
        has_response_cache=False,
        max_batch_size=8,
    )


def _server() -> Any:
    """As much of one as leases look at."""
    models = SimpleNamespace(on_retire=None, on_install=[], serving=list)
    return SimpleNamespace(
        calls=None,
        registry=SimpleNamespace(models=models),
        tracing=SimpleNamespace(on_replace=None),
        recorder=SimpleNamespace(on_start=None),
        on_exit=None,
    )


@pytest.mark.parametrize(
    ("flags", "config", "expected"),
    [
        ([], _config(1), None),
        ([], _config(8), 4),
        ([], _config(16), None),
        ([], _config(8, is_decoupled=True), None),
        ([], _config(8, backend="identity"), None),
        (["--frontend-processes=auto"], _config(8), 4),
        (["--frontend-leases=false"], _config(1), 4),
        (["--frontend-leases=false"], _config(8), 3),
        (["--frontend-leases=false"], _config(16), None),
        (["--access-log=log"], _config(8), None),
        (["--access-log=log", "--frontend-leases=false"], _config(8), None),
        (["--max-queue-size=100"], _config(8), None),
        (["--max-queue-size=20000"], _config(8), 4),
    ],
)
def test_the_options_and_the_models_instances_decide_when_they_are_known(
    monkeypatch: pytest.MonkeyPatch, flags: list[str], config: SimpleNamespace, expected: int | None
) -> None:
    monkeypatch.setattr(front_ends, "core_count", lambda: 16)
    options = parse_options(["--model-repository=models", *flags], {}).options

    async def run() -> None:
        starter = start_starter(_wait_for_the_end)
        metrics = SimpleNamespace(others=[], requests=RecentRequests())
        arguments = cast(Any, (lambda: [_config(0), config], _server(), metrics, ConnectionSlots()))
        processes = front_ends.open_front_ends(options, starter, *arguments)
        if processes is None:
            assert expected is None
            assert starter.control.fileno() == -1  # it has ended
            assert not metrics.others
        else:
            assert len(processes.connection_counts) == expected
            assert processes.on_new_records == metrics.requests.add
            await processes.close(0)

    asyncio.run(run())


def test_no_configuration_is_read_for_a_number_that_is_given(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    options = parse_options(["--model-repository=models", "--frontend-processes=2"], {}).options

    async def run() -> None:
        starter = start_starter(_wait_for_the_end)
        metrics = SimpleNamespace(others=[], requests=RecentRequests())
        arguments = cast(Any, (lambda: pytest.fail("the models have no say"), _server(), metrics, ConnectionSlots()))
        processes = front_ends.open_front_ends(options, starter, *arguments)
        assert processes is not None
        assert len(processes.connection_counts) == 2
        await processes.close(0)

    asyncio.run(run())
    assert "2 front-end processes hold" in caplog.text
    assert "Started" not in caplog.text  # whoever reads the log waits for Triton's services behind that word
