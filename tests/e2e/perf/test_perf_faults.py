"""`trireme perf` where something is wrong: words and exit codes that scripts can use, and what was measured so far."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from running_server import RunningServer

Perf = Callable[..., subprocess.CompletedProcess[str]]
QUICK = ("-p", "150", "-s", "10000")


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("-m", "nobody"), "failed to get model metadata: Request for unknown model: 'nobody' is not found"),
        (("-m", "copy"), "input IN contains dynamic shape, provide shapes to send along with the request"),
        (("-m", "broken", "--shape", "IN:1"), "Thread [0] had error: it is broken"),
        (("-m", "copy", "--shape", "IN:1", "-b", "9"), "Thread [0] had error: "),
        (
            ("-m", "texts", "--shape", "in:2"),
            "--shape in: the model 'texts' has no input of that name, its inputs are IN\n",
        ),
        (
            ("-m", "copy", "--shape", "IN:1", "--bls-composing-models", "texts,nosuch"),
            "Error: --bls-composing-models nosuch: Request for unknown model: 'nosuch' is not found\n",
        ),
        (("-m", "words"), "Decoupled models must be run with `--async` and `--streaming` and `-i grpc`\n"),
        (("-m", "copy", "--input-data", "/no/such.json"), "Failed to parse --input-data."),
        (("-m", "copy", "--no-such-flag"), "'trireme perf --help' lists every option."),
    ],
)
def test_faults_have_words_and_the_code_of_the_original(
    perf: Perf, protocol: str, words: tuple[str, ...], sentence: str
) -> None:
    run = perf(*words, *QUICK, protocol=protocol)
    assert run.returncode == 99
    assert sentence in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_server_that_is_down_is_said(protocol: str) -> None:
    command = [sys.executable, "-m", "trireme", "perf", "-m", "copy", "-i", protocol, "-u", "127.0.0.1:9"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 99
    assert "failed to get model metadata" in run.stderr
    assert "127.0.0.1:9" in run.stderr


@pytest.mark.parametrize(("protocol", "port"), [("http", "grpc"), ("grpc", "http")])
def test_the_wrong_port_is_guessed(server: RunningServer, protocol: str, port: str) -> None:
    place = f"127.0.0.1:{server.ports[port]}"
    command = [sys.executable, "-m", "trireme", "perf", "-m", "copy", "-i", protocol, "-u", place]
    run = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert run.returncode == 99
    assert "port" in run.stderr


def test_an_answer_whose_head_never_ends_ends_the_run() -> None:
    run = _run_where_inference_is(_endless_head)
    assert run.returncode == 99
    assert "the server's answer cannot be read: its head has more than 1048576 bytes" in run.stderr


def test_a_server_that_takes_requests_and_answers_none_is_told_window_by_window() -> None:
    run = _run_where_inference_is(lambda connection: None, "-p", "100", "-r", "3")
    assert run.returncode == 3
    for number in (1, 2, 3):
        assert f"No request was answered in window {number}.\n" in run.stderr
    assert run.stderr.endswith("The server has taken the requests and answered none.\n")


def test_a_signal_in_the_warm_up_measures_nothing() -> None:
    is_asked = threading.Event()
    say = _saying(_ANSWER)

    def answer(connection: socket.socket) -> None:
        say(connection)
        is_asked.set()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_accept, args=[listening, answer], daemon=True).start()
        place = f"127.0.0.1:{listening.getsockname()[1]}"
        words = ["-m", "m", "-u", place, "--warmup-request-count", "100000000", "--request-count", "5"]
        command = [sys.executable, "-m", "trireme", "perf", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert is_asked.wait(60)
            process.send_signal(signal.SIGINT)
            printed, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert told.endswith("Interrupted before the measurement began.\n")
    assert "Throughput" not in printed


def _run_where_inference_is(answer: Callable[[socket.socket], None], *words: str) -> subprocess.CompletedProcess[str]:
    """Loads a server that describes its model, and treats inferences like this."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_accept, args=[listening, answer], daemon=True).start()
        place = f"127.0.0.1:{listening.getsockname()[1]}"
        command = [sys.executable, "-m", "trireme", "perf", "-m", "m", "-u", place, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def _accept(listening: socket.socket, answer: Callable[[socket.socket], None]) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=_describe, args=[connection, answer], daemon=True).start()


def _describe(connection: socket.socket, answer: Callable[[socket.socket], None]) -> None:
    tensor = {"datatype": "FP32", "shape": [4]}
    described = {"name": "m", "inputs": [{"name": "IN", **tensor}], "outputs": [{"name": "OUT", **tensor}]}
    body = json.dumps(described).encode()
    with connection, contextlib.suppress(OSError):
        while request := connection.recv(1 << 16):
            if b"/infer" not in request:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                continue
            answer(connection)


_ANSWER = b'{"model_name":"m","outputs":[{"name":"OUT","datatype":"FP32","shape":[1],"data":[1.0]}]}'


def _saying(*bodies: bytes, head: bytes = b"") -> Callable[[socket.socket], None]:
    """These bodies one after the other, each with status 200, and the last one from then on."""
    left = list(bodies)

    def answer(connection: socket.socket) -> None:
        body = left.pop(0) if len(left) > 1 else left[0]
        connection.sendall(b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body))

    return answer


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "failed to parse the answer's JSON: The document is empty."),
        (b"garbage", "failed to parse the answer's JSON: "),
        (b"[1]", "the answer is no inference response: its JSON has no list of outputs with names"),
        (b'{"error": "no"}', "the answer is no inference response: its JSON has no list of outputs with names"),
        (
            b'{"outputs": [{"name": "OUT", "parameters": {"binary_data_size": 4}}]}',
            "the answer's outputs are larger than the 0 bytes behind its JSON",
        ),
    ],
)
def test_a_success_that_is_no_inference_response_ends_the_run(body: bytes, sentence: str) -> None:
    run = _run_where_inference_is(_saying(body), "--request-count", "20")
    assert run.returncode == 99
    assert f"Thread [0] had error: {sentence}" in run.stderr
    assert "throughput" not in run.stdout


@pytest.mark.parametrize("body", [b"", b"garbage"])
def test_an_answer_is_looked_at_behind_good_ones_too(body: bytes) -> None:
    run = _run_where_inference_is(_saying(*[_ANSWER] * 10, body), "--request-count", "20")
    assert run.returncode == 99
    assert "failed to parse the answer's JSON: " in run.stderr
    assert "Request count: 10\n" in run.stdout


@pytest.mark.parametrize("answered", [1, 2])
def test_a_load_that_breaks_down_at_once_has_the_rate_of_what_was_answered(answered: int) -> None:
    run = _run_where_inference_is(_saying(*[_ANSWER] * answered, b""))
    assert run.returncode == 99
    assert f"Request count: {answered}\n" in run.stdout
    (rate,) = re.findall(r"Throughput: (\S+) infer/sec", run.stdout)
    (latency_us,) = re.findall(r"Avg latency: (\d+) usec", run.stdout)
    assert float(rate) <= 1.1e6 / int(latency_us)  # one client has one request under way


def test_an_answer_in_chunks_that_has_none_ends_the_run() -> None:
    run = _run_where_inference_is(
        lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
    )
    assert run.returncode == 99
    assert "Thread [0] had error: failed to parse the answer's JSON: The document is empty." in run.stderr


def test_json_that_is_longer_than_its_body_ends_the_run() -> None:
    run = _run_where_inference_is(_saying(_ANSWER, head=b"Inference-Header-Content-Length: 900\r\n"))
    assert run.returncode == 99
    assert f"its head announces 900 bytes of JSON in a body of {len(_ANSWER)}" in run.stderr


@pytest.mark.parametrize("lead", [b"", b" "])
def test_good_answers_are_counted_be_they_with_a_space_before_their_json(lead: bytes) -> None:
    run = _run_where_inference_is(_saying(lead + _ANSWER), "--request-count", "20")
    assert run.returncode == 0, run.stderr
    assert "Request count: 20\n" in run.stdout


def _endless_head(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X-More: " + b"a" * 60_000 + b"\r\n")


def test_an_unstable_measurement_has_a_code_of_its_own(perf: Perf) -> None:
    run = perf("-m", "copy", "--shape", "IN:4", "-p", "60", "-s", "0", "-r", "3")
    assert run.returncode == 2
    assert (
        "Failed to obtain stable measurement within 3 measurement windows for concurrency 1. "
        "Please try to increase the --measurement-interval.\n" in run.stderr
    )


def test_expected_outputs_are_compared(perf: Perf, tmp_path: Path) -> None:
    data = {"data": [{"IN": [1, 2]}, {"IN": [3, 4]}], "validation_data": [{"OUT": [1, 2]}, {"OUT": [3, 5]}]}
    (tmp_path / "data.json").write_text(json.dumps(data))
    run = perf("-m", "copy", "--input-data", "data.json", *QUICK, protocol="grpc")
    assert run.returncode == 99
    assert "Output doesn't match expected output: 'OUT' differs" in run.stderr
    data["validation_data"][1] = {"OUT": [3, 4]}
    (tmp_path / "data.json").write_text(json.dumps(data))
    assert perf("-m", "copy", "--input-data", "data.json", *QUICK).returncode == 0


@pytest.mark.parametrize("is_for_all", [False, True], ids=["process", "group"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_prints_what_there_is_and_leaves_nothing_behind(
    server: RunningServer, tmp_path: Path, number: int, is_for_all: bool
) -> None:
    place = f"127.0.0.1:{server.ports['http']}"
    words = [
        "-m",
        "copy",
        "--shape",
        "IN:4",
        "-u",
        place,
        "-p",
        "100",
        "-s",
        "0",
        "-r",
        "100000",
        "-f",
        "out.csv",
        "-v",
        "--shared-memory",
        "system",
    ]
    command = [sys.executable, "-m", "trireme", "perf", *words]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "Pass [2]" in line:
                break
        if is_for_all:  # as `timeout` and terminals send it
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        rest, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert f"Interrupt signal ({number:d}) received.\n" in rest
    assert json.loads(server.ask("GET", "/v2/systemsharedmemory/status")[2]) == []
    assert not list(Path("/dev/shm").glob(f"perf_{process.pid}_*"))
    assert "    Request count: " in rest
    assert "Concurrency: 1, throughput: " in rest
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 2


def test_a_server_that_dies_ends_the_run_with_what_there_is(tmp_path: Path) -> None:
    from running_server import INT_CONFIG, write_model

    code = (
        "import triton_python_backend_utils as pb_utils\n"
        "class TritonPythonModel:\n"
        "    def execute(self, requests):\n"
        "        return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', "
        "pb_utils.get_input_tensor_by_name(r, 'IN').as_numpy())]) for r in requests]\n"
    )
    write_model(tmp_path, "copy", code, INT_CONFIG)
    with RunningServer(tmp_path) as running:
        running.wait_until_listening()
        place = f"127.0.0.1:{running.ports['grpc']}"
        words = [
            "-m",
            "copy",
            "--shape",
            "IN:4",
            "-i",
            "grpc",
            "-u",
            place,
            "-p",
            "100",
            "-s",
            "0",
            "-r",
            "100000",
            "-v",
            "-f",
            str(tmp_path / "out.csv"),
        ]
        command = [sys.executable, "-m", "trireme", "perf", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if "Pass [1]" in line:
                    break
            running.process.kill()
            began = time.monotonic()
            rest, errors = process.communicate(timeout=60)
    assert process.returncode == 99
    assert "Concurrency: 1, throughput: " in rest
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 2
    assert errors.strip(), "the reason is missing"
    assert time.monotonic() - began < 30
    assert "Traceback" not in errors


def test_a_file_that_cannot_be_written_does_not_cost_the_others(perf: Perf, tmp_path: Path) -> None:
    run = perf(
        *("-m", "copy", "--shape", "IN:4", "--request-count", "3", "-f", "/dev/full"),
        *("--profile-export-file", "p.json", "--latency-histogram", "latencies.hgrm"),
    )
    assert run.returncode == 99
    assert "failed to write '/dev/full': No space left on device" in run.stderr
    assert len(json.loads((tmp_path / "p.json").read_text())["experiments"]) == 1
    assert "Total count" in (tmp_path / "latencies.hgrm").read_text()


def test_every_request_is_exported(perf: Perf, tmp_path: Path) -> None:
    run = perf("-m", "words", "--streaming", "--request-count", "3", "--profile-export-file", "p.json", protocol="grpc")
    assert run.returncode == 0, run.stderr
    document = json.loads((tmp_path / "p.json").read_text())
    (experiment,) = document["experiments"]
    assert experiment["experiment"] == {"mode": "concurrency", "value": 1}
    assert (document["service_kind"], document["endpoint"]) == ("triton", "")
    assert len(experiment["window_boundaries"]) == 2
    assert len(experiment["requests"]) == 3
    request = experiment["requests"][0]
    assert len(request["request_inputs"]["text_input"]) == 128
    texts = [output["text_output"] for output in request["response_outputs"]]
    assert texts == ["word0 ", "word1 ", "word2 ", "word3 ", "word4 ", ""]
    stamps = request["response_timestamps"]
    assert len(stamps) == 6
    assert abs(request["timestamp"] / 1e9 - time.time()) < 120
    assert request["timestamp"] <= stamps[0] <= stamps[-1]


def test_periods_add_requests_until_the_end(perf: Perf, tmp_path: Path) -> None:
    run = perf(
        "-m", "words", "--streaming", "--periodic-concurrency-range", "2:6:2", "--request-period", "3",
        "--profile-export-file", "p.json", protocol="grpc",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    (experiment,) = json.loads((tmp_path / "p.json").read_text())["experiments"]
    assert len(experiment["requests"]) == 6
    assert experiment["window_boundaries"] == [0, 2**64 - 1]
    assert "Client:" not in run.stdout


def test_on_a_terminal_the_run_is_shown_in_place_and_gone_at_its_end(server: RunningServer, tmp_path: Path) -> None:
    place = f"127.0.0.1:{server.ports['http']}"
    words = ["-m", "copy", "--shape", "IN:4", "-u", place, "-p", "700", "-s", "1000"]
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "trireme", "perf", *words]
    with subprocess.Popen(command, cwd=tmp_path, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        try:
            while data := os.read(ours, 4096):
                shown += data
        except OSError:  # how a terminal tells that the other side is gone
            pass
        finally:
            os.close(ours)
    assert process.returncode == 0, shown
    text = shown.decode()
    assert "concurrency 1, " in text
    assert "under way, this client takes" in text
    assert "window 1: " in text
    assert "Concurrency: 1, throughput: " in text.rpartition("\x1b[J")[2]  # the report is behind all of it
