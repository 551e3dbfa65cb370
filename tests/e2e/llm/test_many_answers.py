"""Requests of many answers, whose clients read nothing, beside small ones."""

from __future__ import annotations

import json
import socket

import pytest
from running_server import RunningServer

_LABELS = (("model", "scribe"), ("version", "1"))
_STREAMS, _ANSWERS = 8, 16


def open_unread(server: RunningServer) -> socket.socket:
    """A stream of many long answers, of which nothing is read."""
    fields = {"prompt": "Once upon a time", "n": _ANSWERS, "max_tokens": 490, "temperature": 1.0, "stream": True}
    body = json.dumps({"model": "scribe", "ignore_eos": True, **fields}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", server.ports["http"]))
    connection.sendall(head + body)
    return connection


@pytest.mark.slow
def test_a_small_request_does_not_wait_for_the_many_answers_of_those_before_it(scribe: RunningServer) -> None:
    def count(name: str) -> float:
        return scribe.metric(f"vllm:num_requests_{name}").get(_LABELS, 0.0)

    scribe.until(lambda: count("running") == 0)
    streams = [open_unread(scribe) for _ in range(_STREAMS)]
    scribe.until(lambda: count("running") + count("waiting") == _STREAMS * _ANSWERS)
    for _ in range(3):
        status, _, body = scribe.ask("POST", "/v1/completions", {"model": "scribe", "prompt": "Hello", "max_tokens": 5})
        assert status == 200, body
    assert count("waiting") > _STREAMS * _ANSWERS / 2  # in their order none would have waited any more
    for stream in streams:
        stream.close()
    scribe.until(lambda: count("running") + count("waiting") == 0)
