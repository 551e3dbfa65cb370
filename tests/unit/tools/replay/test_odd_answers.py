"""Servers whose answers are not what the protocol says: each request fails, and the command does not succeed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from meanwhile import serving

from trireme.cli.recording.replay import main
from trireme.core.recorded_call import RecordedCall, RecordedResponse
from trireme.core.tensor import Tensor
from trireme.protocol.recording.calls import encode_begin, encode_calls, encode_end
from trireme.protocol.recording.frames import MAGIC, encode_frame

METADATA = {"name": "m", "versions": ["1"], "platform": "", "inputs": [], "outputs": []}
GIVEN = Tensor("IN", "FP32", (1,), b"\0\0\0\0")
RESPONSE = RecordedResponse(7, (Tensor("OUT", "FP32", (1,), b"\0\0\0\0"),))


def output(datatype: str, data: list[Any]) -> Any:
    return {"model_name": "m", "outputs": [{"name": "OUT", "datatype": datatype, "shape": [1], "data": data}]}


@contextmanager
def answering(answer: Any, metadata: Any) -> Iterator[str]:
    """The address of a server that says this, with status 200."""

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.say(metadata)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.say(answer)

        def say(self, document: Any) -> None:
            body = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Answers)) as server:
        yield f"127.0.0.1:{server.server_port}"


def written(path: Path, *calls: RecordedCall) -> str:
    path.write_bytes(MAGIC + encode_begin({"id": "x", "sample": 1.0}) + encode_calls(calls) + encode_end({"seen": 2}))
    return str(path)


@pytest.mark.parametrize(
    "answer",
    [[], 7, output("FP99", [1]), output("FP32", ["x"]), {"outputs": 7}, output("FP32", [0.0]) | {"parameters": [1]}],
)
@pytest.mark.parametrize("metadata", [METADATA, ["x"]])
def test_an_answer_that_cannot_be_read_fails_its_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], answer: Any, metadata: Any
) -> None:
    calls = [RecordedCall(at_ns, "m", inputs=(GIVEN,), responses=(RESPONSE,)) for at_ns in (0, 1)]
    report = tmp_path / "report.json"
    with answering(answer, metadata) as url:
        code = main([written(tmp_path / "a.rec", *calls), url, "--json", str(report)])
    found = json.loads(report.read_text())
    assert code == 1
    assert (found["requests"], found["sent"], found["verdicts"]["fails now"]) == (2, 2, 2)
    assert "the answer cannot be" in found["errors"][0]["error"]
    assert "2 answers differ or fail" in capsys.readouterr().out


def test_a_file_with_odd_members_is_shown_and_played(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = RecordedCall(0, "m\x1b[31m", inputs=(GIVEN,), responses=(RESPONSE,))
    odd = {"kind": "call", "at_ns": 1, "model": "m", "inputs": [], "correlation_id": {"a": 1}}
    begin = encode_begin({"id": "x", "sample": [], "server": "s\x1b[2J"})
    path = tmp_path / "a.rec"
    path.write_bytes(MAGIC + begin + encode_calls([good]) + encode_frame(odd) + encode_end({"dropped": []}))
    assert main([str(path), "--show"]) == 0
    shown = capsys.readouterr()
    assert "recorded from s\\x1b[2J None, sample []\n1 request in 0.0 s" in shown.out
    assert "m\\x1b[31m" in shown.out
    assert "1 entry describes no request and is left out" in shown.err
    with answering(output("FP32", [0.0]), METADATA) as url:
        assert main([str(path), url]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_a_report_that_cannot_be_written_is_told_before_the_replay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path / "a.rec", RecordedCall(0, "m"))
    for words, told in (
        (["--html", str(tmp_path)], "it is a folder"),
        (["--json", str(tmp_path / "no" / "r.json")], "there is no folder"),
    ):
        assert main([file, "127.0.0.1:9", *words]) == 2
        assert told in capsys.readouterr().err


def test_an_error_does_nothing_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "\x1b[31m.rec").write_text("no recording")
    assert main([str(tmp_path / "\x1b[31m.rec")]) == 2
    assert "\\x1b[31m.rec' is no recording" in capsys.readouterr().err


def test_what_a_client_cannot_cope_with_fails_its_request_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object) -> None:
        raise RuntimeError("no such thing was thought of")

    monkeypatch.setattr("trireme.tools.client.http_client.decode_answer", broken)
    call = RecordedCall(0, "m", inputs=(GIVEN,), responses=(RESPONSE,))
    report = tmp_path / "report.json"
    with answering(output("FP32", [0.0]), METADATA) as url:
        assert main([written(tmp_path / "a.rec", call, call), url, "--json", str(report)]) == 1
    found = json.loads(report.read_text())
    assert (found["is_complete"], found["verdicts"]["fails now"]) == (True, 2)
    assert "RuntimeError: no such thing was thought of" in found["errors"][0]["error"]


def test_a_right_answer_is_a_success(tmp_path: Path) -> None:
    calls = [RecordedCall(at_ns, "m", inputs=(GIVEN,), responses=(RESPONSE,)) for at_ns in (0, 1)]
    with answering(output("FP32", [0.0]), METADATA) as url:
        assert main([written(tmp_path / "a.rec", *calls), url]) == 0


def test_nothing_sent_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    large = RecordedCall(0, "m", inputs=(GIVEN,), unplayable="too large")
    with answering([], METADATA) as url:
        assert main([written(tmp_path / "a.rec", large), url]) == 1
    assert "No request was sent." in capsys.readouterr().out


def test_a_failure_of_the_replay_itself_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object) -> None:
        raise RuntimeError("no thread left")

    monkeypatch.setattr("trireme.tools.replay.run.Results.add", broken)
    call = RecordedCall(0, "m", inputs=(GIVEN,), responses=(RESPONSE,))
    with answering(output("FP32", [0.0]), METADATA) as url:
        assert main([written(tmp_path / "a.rec", call), url]) == 1
    assert "INCOMPLETE: the replay itself failed: RuntimeError: no thread left" in capsys.readouterr().out
