"""Which requests a front-end process reads itself, and which it hands on whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trireme.frontends.http.options import HttpFrontendOptions
from trireme.frontends.processes.http_lane import HttpLane

INPUT = {"name": "INPUT0", "shape": [2], "datatype": "INT32", "data": [1, 2]}


def is_read(document: dict[str, Any]) -> bool:
    lane, body = HttpLane(HttpFrontendOptions()), json.dumps(document).encode()
    head, _ = lane.head_of(b"POST /v2/models/adder/infer HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\n")
    assert head is not None
    return lane.decode(head, body) is not None


@pytest.mark.parametrize(
    "members", [{}, {"id": "a"}, {"outputs": [{"name": "OUTPUT0"}]}, {"nobody": 1}, {"parameters": {"mine": 1}}]
)
def test_plain_documents_are_read_here(members: dict[str, Any]) -> None:
    assert is_read({"inputs": [INPUT]} | members)


@pytest.mark.parametrize("members", [{"output": [{"name": "OUTPUT0"}]}, {"paramters": {}}])
def test_documents_with_mistyped_members_go_to_the_server_process_which_tells_of_them(members: dict[str, Any]) -> None:
    assert not is_read({"inputs": [INPUT]} | members)
