"""What a chat in the terminal tells its user."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from meanwhile import serving

from trireme.cli.terminal_chat.client import ChatClient
from trireme.cli.terminal_chat.session import ChatSession


class _Forgetful(BaseHTTPRequestHandler):
    """Takes a question, and no history."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if len(asked["messages"]) > 1 or len(asked["messages"][0]["content"]) > 100:
            error = {"message": "the prompt is too long", "code": "context_length_exceeded"}
            self._answer(400, json.dumps({"error": error}))
        else:
            piece = {"choices": [{"delta": {"content": "Yes."}}]}
            self._answer(200, f"data: {json.dumps(piece)}\n\ndata: [DONE]\n\n")

    def _answer(self, status: int, body: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *words: object) -> None:
        """Says nothing."""


def test_who_has_talked_too_long_is_told_how_to_begin_anew(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = iter(["Is it?", "And this?", "/reset", "Is it?", "/exit"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    with serving(HTTPServer(("127.0.0.1", 0), _Forgetful)) as server:
        client = ChatClient(f"http://127.0.0.1:{server.server_port}")
        assert ChatSession(client, "any", "", {}).run() == 1
    told = capsys.readouterr()
    assert told.out == "Yes.\nYes.\n"
    assert (
        told.err.count("error: the prompt is too long\nThe chat has become too long for the model: /reset begins anew.")
        == 1
    )


def test_a_first_question_that_is_too_long_is_an_error_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = iter(["x" * 101, "/exit"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    with serving(HTTPServer(("127.0.0.1", 0), _Forgetful)) as server:
        ChatSession(ChatClient(f"http://127.0.0.1:{server.server_port}"), "any", "", {}).run()
    assert capsys.readouterr().err == "error: the prompt is too long\n"
