"""Small messages that become large, floods and clients that leave: the server answers its health check meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import attacks
import pytest
from attack_watch import Watch
from attacked_models import serves, write_models
from attacks import Ports
from running_server import RunningServer

MILLION = 1_000_000
MAX_HEALTH_S = 2.0
"""Twice what is promised: other tests run at the same time."""
MAX_GROWTH_BYTES = 512 << 20
MAX_LEFT_BYTES = 128 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("attacked")
    write_models(folder)
    with RunningServer(folder) as running:
        running.wait_until_listening()
        assert serves(running.ports["http"])
        yield running
        assert serves(running.ports["http"])
        assert "Traceback" not in running.log


ATTACKS = {
    "empty inputs": lambda ports: attacks.empty_inputs(ports, 2 * MILLION),
    "empty strings": lambda ports: attacks.empty_strings(ports, 5 * MILLION),
    "empty raw contents": lambda ports: attacks.empty_raw_contents(ports, 2 * MILLION),
    "dims": lambda ports: attacks.many_shapes(ports, 2 * MILLION),
    "strings in JSON": lambda ports: attacks.json_strings(ports, 5 * MILLION),
    "escapes in JSON": lambda ports: attacks.json_escapes(ports, 5 * MILLION),
    "brackets": attacks.brackets,
    "pipelined": lambda ports: attacks.objects_in_turn(ports, 100),
    "members": lambda ports: attacks.many_members(ports, 1),
    "gzip bombs": lambda ports: attacks.gzip_bombs(ports, 10, 65 << 20),
    "inflated texts": lambda ports: attacks.inflated_texts(ports, 12),
    "inflated short texts": lambda ports: attacks.inflated_short_texts(ports, 300),
    "inflated messages": lambda ports: attacks.inflated_messages(ports, 8, 100 << 20),
    "unended calls": lambda ports: attacks.unended_calls(ports, 2, 100 << 20),
    "compressed calls": lambda ports: attacks.compressed_calls(ports, 100),
    "window updates": lambda ports: attacks.window_updates(ports, 1000),
    "settings": lambda ports: attacks.repeated_settings(ports, 1000),
    "killed receivers": lambda ports: attacks.killed_receivers(ports, 2, 64 << 20),
    "killed HTTP receivers": lambda ports: attacks.killed_http_receivers(ports, 2, 64 << 20),
    "cancelled requests": lambda ports: attacks.cancelled_stream_requests(ports, 60),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_health_is_answered_and_memory_comes_back(server: RunningServer, attack: attacks.Attack) -> None:
    with Watch(server.ports["http"], server.process.pid) as watch:
        attack(Ports(server.ports["http"], server.ports["grpc"]))
        seen = watch.seen(settle_s=5.0)
    assert seen.longest_health_s < MAX_HEALTH_S
    assert not seen.failed_health
    assert seen.growth_bytes < MAX_GROWTH_BYTES
    assert seen.left_bytes < MAX_LEFT_BYTES
    assert seen.worker_left_bytes < MAX_LEFT_BYTES
