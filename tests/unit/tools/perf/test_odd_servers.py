"""Servers and files that say something else than they should: a sentence, and no traceback."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from meanwhile import serving

from trireme.tools.analyze.server.resources import ResourceWatch
from trireme.tools.perf.address import parse_address
from trireme.tools.perf.command import run_command, run_llm_command
from trireme.tools.perf.control import http_calls, patience, unary_call
from trireme.tools.perf.control.grpc_calls import GrpcServerCalls
from trireme.tools.perf.control.http_calls import HttpServerCalls
from trireme.tools.perf.control.port import ServerCalls
from trireme.tools.perf.errors import GENERIC_ERROR, PerfError
from trireme.tools.perf.load.schedules import read_intervals
from trireme.tools.perf.measure.device_metrics import MetricsPoller
from trireme.tools.perf.options import MetricsOptions, PerfOptions
from trireme.tools.perf.run import look_up


@contextmanager
def answering(body: bytes, status: int = 200) -> Iterator[str]:
    """The address of a server that says this to everything."""

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Answers)) as server:
        yield f"127.0.0.1:{server.server_port}"


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"[1]",
        b'{"name": "m", "inputs": 7}',
        b'{"name": "m", "inputs": [7]}',
        b'{"name": "m", "inputs": [{"name": "A", "shape": ["x"]}]}',
        b'{"name": "m", "max_batch_size": "many"}',
        b'{"name": "m", "ensemble_scheduling": []}',
    ],
)
def test_a_description_that_cannot_be_read_is_told(body: bytes) -> None:
    with answering(body) as url:
        calls = HttpServerCalls(parse_address(url, 8000), (), None)
        try:
            with pytest.raises(PerfError, match="what the server says of model 'm' cannot be read: it ") as refusal:
                look_up(PerfOptions(model_name="m"), calls)
        finally:
            calls.close()
    assert "Error" not in str(refusal.value)  # in words, not by the name of an exception


def test_an_answer_of_nothing_but_brackets_is_no_json() -> None:
    with answering(b"[" * 200_000) as url:
        calls = HttpServerCalls(parse_address(url, 8000), (), None)
        try:
            with pytest.raises(PerfError, match="the server's answer to /v2/models/m is no JSON"):
                look_up(PerfOptions(model_name="m"), calls)
        finally:
            calls.close()


@pytest.mark.parametrize("kind", [HttpServerCalls, GrpcServerCalls])
def test_a_server_that_never_answers_is_told_while_it_is_waited_for(
    kind: type[ServerCalls], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(patience, "_QUIET_S", 0.01)
    for module in (patience, http_calls, unary_call):
        monkeypatch.setattr(module, "ANSWER_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as listening:  # connections wait in its queue
        place = f"127.0.0.1:{listening.getsockname()[1]}"
        calls = kind(parse_address(place, 8000), (), None)  # type: ignore[call-arg]
        try:
            with pytest.raises(
                PerfError, match=rf"the server at {place} takes connections, but has not answered .+ within 1 s"
            ):
                calls.metadata("m", "")
        finally:
            calls.close()
    assert f"Waiting for {place}, which has not answered " in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["chat", "completions", "generate"])
def test_a_language_model_s_server_that_never_answers_is_told_before_the_load(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (patience, http_calls):
        monkeypatch.setattr(module, "ANSWER_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        place = f"127.0.0.1:{listening.getsockname()[1]}"
        words = ["-m", "m", "--endpoint-type", kind, "-u", place, "--artifact-dir", str(tmp_path)]
        assert run_llm_command("genai-perf", words) == GENERIC_ERROR
    assert f"the server at {place} takes connections, but has not answered /v" in capsys.readouterr().err


@pytest.mark.parametrize("calls_type", [HttpServerCalls, GrpcServerCalls])
def test_a_connection_that_nobody_takes_is_told_as_such(
    monkeypatch: pytest.MonkeyPatch, calls_type: type[HttpServerCalls | GrpcServerCalls]
) -> None:
    def in_vain(*args: object, **settings: object) -> socket.socket:
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", in_vain)
    with pytest.raises(PerfError, match=r"no connection to 127\.0\.0\.1:1 within 60 s: nobody takes it"):
        calls_type(parse_address("127.0.0.1:1", 8000), (), None).metadata("m", "")


def test_words_of_a_server_do_not_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(b'{"error": "\\u001b[2J\\u001b]0;mine\\u0007 no\\nsecond"}', status=400) as url:
        assert run_command("perf", ["-m", "m", "-u", url]) == GENERIC_ERROR
    told = capsys.readouterr().err
    assert told.startswith("error: failed to get model metadata: \\x1b[2J\\x1b]0;mine\\x07 no\nsecond")


def test_a_page_that_has_no_metrics_is_told() -> None:
    page = b'nv_gpu_utilization{gpu_uuid="x"} full\n'
    with answering(page) as url, pytest.raises(PerfError, match="answered with no page of metrics"):
        MetricsPoller(MetricsOptions(is_on=True, url=f"{url}/metrics")).start()


class _Endless(BaseHTTPRequestHandler):
    """Says of its answer that it has less than nothing, and does not end."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "-1")
        self.end_headers()
        self.rfile.read()

    def log_message(self, format: str, *words: object) -> None:
        """Says nothing."""


def test_a_page_of_metrics_whose_length_is_none_is_not_waited_for() -> None:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), _Endless)) as server:
        url = f"127.0.0.1:{server.server_port}/metrics"
        with pytest.raises(PerfError, match="announces a length of '-1', which is no number of bytes"):
            MetricsPoller(MetricsOptions(is_on=True, url=url)).start()
        with pytest.raises(OSError, match="announces a length of '-1', which is no number of bytes"):
            ResourceWatch(url, 60.0)._page()


@pytest.mark.parametrize("line", ["nan", "inf", "-1", "a"])
def test_intervals_are_finite_numbers(tmp_path: Path, line: str) -> None:
    (tmp_path / "intervals").write_text(f"10\n{line}\n")
    with pytest.raises(PerfError, match=f"line 2: '{line}' is no number of microseconds"):
        read_intervals(str(tmp_path / "intervals"))
