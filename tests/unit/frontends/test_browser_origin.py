"""Pages for which a browser may change something, told by the names it sends."""

from __future__ import annotations

import socket

import pytest

from trireme.frontends.browser_origin import is_of_another_page


@pytest.mark.parametrize(
    "host",
    ["localhost:8000", "LOCALHOST", "models.localhost:8000", "127.0.0.1:8000", "10.0.0.7", "[::1]:8000", "[fe80::1]"],
)
def test_a_page_of_the_server_is_its_own(host: str) -> None:
    assert not is_of_another_page([("Host", host), ("Origin", f"http://{host}")])
    assert not is_of_another_page([("host", host), ("origin", f"https://{host}")])


def test_the_machines_own_name_is_the_servers() -> None:
    host = f"{socket.gethostname()}:8000"
    assert not is_of_another_page([("Host", host), ("Origin", f"http://{host}")])


@pytest.mark.parametrize(
    "host", ["attacker.example:8000", "127.0.0.1.attacker.example", "localhost.attacker.example", ""]
)
def test_a_name_that_points_here_is_somebody_elses(host: str) -> None:
    assert is_of_another_page([("Host", host), ("Origin", f"http://{host}")])
    assert not is_of_another_page([("Host", host)])  # a program's


def test_another_origin_than_the_host_is_another_page() -> None:
    for origin in ("http://elsewhere.example", "null", "http://localhost:8001"):
        assert is_of_another_page([("Host", "localhost:8000"), ("Origin", origin)])
