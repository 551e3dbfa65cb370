"""`trireme perf --session-concurrency`: conversations turn by turn, with what was said before."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from meanwhile import serving


@dataclass
class Chat:
    """What a server of OpenAI's protocol was asked."""

    bodies: list[dict[str, Any]] = field(default_factory=list)
    under_way: int = 0
    most: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def chat_server(chat: Chat) -> Iterator[str]:
    """Says how many messages it has got; two requests at a time are answered together."""
    both = threading.Barrier(2)

    class Completions(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with chat.lock:
                chat.bodies.append(body)
                chat.under_way += 1
                chat.most = max(chat.most, chat.under_way)
            if len(body["messages"]) == 1 and body["messages"][0]["content"] != "third":
                both.wait(30)
            with chat.lock:
                chat.under_way -= 1
            self._answer(f"{len(body['messages'])} messages", body.get("stream", False))

        def _answer(self, text: str, is_stream: bool) -> None:
            if is_stream:
                pieces = [{"choices": [{"delta": {"content": piece}}]} for piece in (text[:2], text[2:])]
                events = [*map(json.dumps, pieces), "[DONE]"]
                content, kind = "".join(f"data: {event}\n\n" for event in events), "text/event-stream"
            else:
                message = {"role": "assistant", "content": text}
                content, kind = json.dumps({"choices": [{"message": message}]}), "application/json"
            self.wfile.write(
                f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n{content}".encode()
            )

        def log_message(self, format: str, *args: object) -> None:
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Completions)) as server:
        yield f"127.0.0.1:{server.server_port}"


def turn(session: str, text: str, is_stream: bool, **more: Any) -> dict[str, Any]:
    body = {"model": "m", "messages": [{"role": "user", "content": text}], "stream": is_stream}
    return {"session_id": [session], "payload": [body], **more}


def perf(folder: Path, data: object, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "turns.json").write_text(json.dumps({"data": data}))
    command = [sys.executable, "-m", "trireme", "perf", "-m", "m", "--service-kind", "openai"]
    command += ["--endpoint", "v1/chat/completions", "--input-data", "turns.json", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
def test_turns_follow_each_other_with_what_was_said(tmp_path: Path, is_stream: bool) -> None:
    turns = [
        turn("a", "first", is_stream),
        turn("b", "second", is_stream),
        turn("a", "and then", is_stream, delay=[300]),
        turn("c", "third", is_stream),
    ]
    words = ["--session-concurrency", "2", "--profile-export-file", "out.json", *(["--streaming"] if is_stream else [])]
    chat = Chat()
    with chat_server(chat) as url:
        run = perf(tmp_path, turns, "-u", url, *words)
    assert run.returncode == 0, run.stderr
    assert "    Request count: 4\n" in run.stdout
    assert len(chat.bodies) == 4
    assert chat.most == 2
    (second,) = (body for body in chat.bodies if len(body["messages"]) > 1)
    assert second["messages"] == [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "1 messages"},
        {"role": "user", "content": "and then"},
    ]
    document = json.loads((tmp_path / "out.json").read_text())
    requests = {json.loads(one["request_inputs"]["payload"])["messages"][0]["content"]: one
                for one in document["experiments"][0]["requests"]}  # fmt: skip
    waited_ns = requests["and then"]["timestamp"] - requests["first"]["response_timestamps"][-1]
    assert waited_ns >= 300_000_000


@pytest.mark.parametrize(
    ("entry", "words", "sentence"),
    [
        ({"payload": [{}]}, (), "'turns.json', entry 0: --session-concurrency needs a \"session_id\""),
        ({"payload": [{}], "session_id": ["a"], "delay": ["soon"]}, (), "entry 0: 'delay' is no number of millis"),
        ({"payload": [{}], "session_id": ["a"]}, ("--concurrency-range", "2"), "Cannot use --session-concurrency with"),
    ],
)
def test_what_is_no_conversation_is_refused(
    tmp_path: Path, entry: object, words: tuple[str, ...], sentence: str
) -> None:
    run = perf(tmp_path, [entry], "--session-concurrency", "2", *words)
    assert run.returncode == 99
    assert sentence in run.stderr
