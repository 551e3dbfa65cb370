"""A crowd of event streams: so many are sent, the rest is told why not, and who leaves makes room."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from console_models import ADD_ONE, config
from running_server import RunningServer, write_model

LIMIT = 100


@contextmanager
def stream(server: RunningServer) -> Iterator[http.client.HTTPResponse]:
    with closing(http.client.HTTPConnection("127.0.0.1", server.ports["http"], timeout=60)) as connection:
        connection.request("GET", "/console/api/events")
        yield connection.getresponse()


def is_let_in(server: RunningServer) -> bool:
    with stream(server) as answer:
        return answer.status == 200 and json.loads(answer.readline().removeprefix(b"data: "))["whole"]


def test_streams_beyond_the_limit_are_refused_until_others_have_left(tmp_path: Path) -> None:
    write_model(tmp_path, "numbers", ADD_ONE, config("IN INT32 -1", "OUT INT32 -1", "max_batch_size: 8"))
    with RunningServer(tmp_path) as server:
        server.wait_until_listening()
        with ExitStack() as opened:
            for _ in range(LIMIT):
                answer = opened.enter_context(stream(server))
                assert answer.status == 200
            with stream(server) as refused:
                assert refused.status == 503
                assert f"{LIMIT} pages at a time" in json.loads(refused.read())["error"]
            assert server.status("/v2/health/live") == 200
        server.until(lambda: is_let_in(server))
