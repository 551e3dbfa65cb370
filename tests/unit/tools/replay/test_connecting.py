"""Which of two addresses a recorded call is sent to."""

from __future__ import annotations

import pytest

from trireme.tools.client.connect import ConnectionOptions
from trireme.tools.replay.connecting import client_maker


@pytest.mark.parametrize(
    ("options", "grpc_url", "places"),
    [
        (ConnectionOptions("host:1"), None, ["http://host:1", "http://host:1"]),
        (ConnectionOptions("host:1"), "host:2", ["http://host:1", "grpc://host:2"]),
        (ConnectionOptions("host:1", is_grpc=True), None, ["grpc://host:1", "grpc://host:1"]),
        (ConnectionOptions("host:1", is_grpc=True), "host:2", ["grpc://host:2", "grpc://host:2"]),
        (ConnectionOptions(is_grpc=True), "host:2", ["grpc://host:2", "grpc://host:2"]),
    ],
    ids=["http", "both", "grpc", "grpc at its address", "grpc at its address alone"],
)
def test_calls_go_where_their_protocol_is(options: ConnectionOptions, grpc_url: str | None, places: list[str]) -> None:
    new_client = client_maker(options, grpc_url)
    assert [new_client(protocol).place for protocol in ("http", "grpc")] == places
