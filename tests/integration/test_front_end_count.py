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

OPTIONS = parse_options(["--model-repository=models", "--frontend-processes=auto"], {}).options


def _wait_for_the_end(sock: socket.socket, side: socket.socket) -> None:
    while sock.recv(4096):
        pass


@pytest.mark.parametrize(("instance_count", "expected"), [(1, 4), (8, 3), (16, None)])
def test_the_models_instances_decide_when_they_are_known(
    monkeypatch: pytest.MonkeyPatch, instance_count: int, expected: int | None
) -> None:
    monkeypatch.setattr(front_ends, "core_count", lambda: 16)
    configs = [
        SimpleNamespace(instance_groups=()),
        SimpleNamespace(instance_groups=(InstanceGroupConfig("some", "KIND_CPU", instance_count),)),
    ]

    async def run() -> None:
        starter = start_starter(_wait_for_the_end)
        server, metrics = SimpleNamespace(calls=None), SimpleNamespace(others=[])
        arguments = cast(Any, (lambda: configs, server, metrics, ConnectionSlots()))
        processes = front_ends.open_front_ends(OPTIONS, starter, *arguments)
        if processes is None:
            assert expected is None
            assert starter.control.fileno() == -1  # it has ended
            assert not metrics.others
        else:
            assert len(processes.connection_counts) == expected
            await processes.close(0)

    asyncio.run(run())


def test_no_configuration_is_read_for_a_number_that_is_given(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    options = parse_options(["--model-repository=models", "--frontend-processes=2"], {}).options

    async def run() -> None:
        starter = start_starter(_wait_for_the_end)
        server, metrics = SimpleNamespace(calls=None), SimpleNamespace(others=[])
        arguments = cast(Any, (lambda: pytest.fail("the models have no say"), server, metrics, ConnectionSlots()))
        processes = front_ends.open_front_ends(options, starter, *arguments)
        assert processes is not None
        assert len(processes.connection_counts) == 2
        await processes.close(0)

    asyncio.run(run())
    assert "2 front-end processes hold" in caplog.text
    assert "Started" not in caplog.text  # whoever reads the log waits for Triton's services behind that word
