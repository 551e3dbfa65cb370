"""Requests that wait while others have the only place for an adapter."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from running_server import RunningServer
from tiny_adapters import write_adapters
from tiny_language_models import build
from tiny_tokenizers import byte_level, write_folder

CONFIG = """backend: "llm"
parameters { key: "dtype" value: { string_value: "float32" } }
parameters { key: "adapters" value: { string_value: "adapters" } }
parameters { key: "max_adapters" value: { string_value: "1" } }
parameters { key: "max_sequences" value: { string_value: "2" } }
parameters { key: "cache_bytes" value: { string_value: "300000000" } }
"""
PROMPT = [5, 9, 17]
POSITIONS = 400_000
ENDLESS = {"input_ids": PROMPT, "ignore_eos": True, "max_tokens": POSITIONS - 100}
"""Takes minutes on any machine, where nobody leaves."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("server")
    model = folder / "model_repository" / "tiny"
    tiny = build("llama", model / "1")
    write_folder(model / "1", byte_level())
    sizes = model / "1" / "config.json"
    sizes.write_text(json.dumps({**json.loads(sizes.read_text()), "max_position_embeddings": POSITIONS}))
    write_adapters(tiny, model / "adapters", ("french", "german"))
    (model / "config.pbtxt").write_text(CONFIG)
    with RunningServer(folder) as server:
        server.wait_until_listening()
        server.until_ready("tiny")
        yield server


def ask(server: RunningServer, adapter: str, **options: Any) -> tuple[int, Any]:
    body = {"input_ids": PROMPT, "max_tokens": 2, "ignore_eos": True, "adapter": adapter, **options}
    status, _, text = server.ask("POST", "/v2/models/tiny/generate", body)
    return status, json.loads(text)


@contextmanager
def left(server: RunningServer, **fields: Any) -> Iterator[socket.socket]:
    """A request whose client leaves at the end of the context."""
    body = json.dumps(fields).encode()
    head = f"POST /v2/models/tiny/generate HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.ports["http"])) as connection:
        connection.sendall(head.encode() + body)
        yield connection


@contextmanager
def all_places_taken(server: RunningServer) -> Iterator[None]:
    """Answers are written with one adapter until the end of the context."""
    before, count = counted(server), 2
    with ExitStack() as stack:
        connections = [stack.enter_context(left(server, adapter="french", **ENDLESS)) for _ in range(count)]
        server.until(lambda: counted(server) == before + count)
        yield
        assert select.select(connections[-1:], [], [], 0)[0] == [], "one has ended"


def counted(server: RunningServer) -> float:
    """How many were begun with that adapter."""
    return sum(server.metric("llm:adapter_requests_total", model="tiny", adapter="french").values())


@pytest.mark.parametrize("options", [{}, {"n": 3}, {"num_beams": 2}])
def test_one_that_waits_for_a_place_is_ended_by_its_time(served: RunningServer, options: dict[str, int]) -> None:
    with all_places_taken(served):
        assert ask(served, "german", timeout=100_000, **options) == (503, {"error": "the request was ended: timeout"})
        assert ask(served, "frensh")[0] == 404
    assert ask(served, "german", **options)[0] == 200


def test_one_whose_client_leaves_while_it_waits_takes_no_place(served: RunningServer) -> None:
    with all_places_taken(served):
        for _ in range(3):
            with left(served, adapter="german", **ENDLESS):
                assert ask(served, "german", timeout=100_000)[0] == 503
    assert ask(served, "german")[0] == 200
