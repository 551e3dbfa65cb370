"""`trireme infer` as people and scripts use it: over both protocols, with files, streams and mistakes."""

from __future__ import annotations

import json
import os
import pty
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

TRIREME = str(Path(sys.executable).with_name("trireme"))
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_numbers(trireme: Run, protocol: str) -> None:
    done = trireme("infer", "adder", "A=1,2,3,4", "B=[10,20,30,40]", protocol=protocol)
    assert (done.returncode, done.stdout, done.stderr) == (0, "SUM  FP32 [1, 4]\n[[11., 22., 33., 44.]]\n", "")


def test_text_alone_is_answered_with_text_alone(trireme: Run, protocol: str) -> None:
    done = trireme("infer", "shout", "Good morning, ξένε", protocol=protocol)
    assert (done.returncode, done.stdout) == (0, "GOOD MORNING, ΞΈΝΕ!!!\n")
    assert trireme("infer", "shout", "@-", given="piped\n", protocol=protocol).stdout == "PIPED!!!\n"


def test_answer_for_scripts(trireme: Run, protocol: str) -> None:
    done = trireme("infer", "adder", "--json", "-d", '{"A": [1, 2, 3, 4], "B": [0, 0, 0, 1]}', protocol=protocol)
    answer = json.loads(done.stdout)
    assert answer["model_name"] == "adder"
    assert answer["outputs"] == [{"name": "SUM", "datatype": "FP32", "shape": [1, 4], "data": [1.0, 2.0, 3.0, 5.0]}]


def test_arrays_in_and_out(trireme: Run, protocol: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(8, dtype=np.float32).reshape(2, 4))
    words = [
        f"A=@{tmp_path}/a.npy",
        f"B=@{tmp_path}/a.npy",
        "-o",
        f"{tmp_path}/sum.npy",
        "-o",
        f"SUM={tmp_path}/sum.raw",
    ]
    done = trireme("infer", "adder", *words, protocol=protocol)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert np.load(tmp_path / "sum.npy").tolist() == [[0, 2, 4, 6], [8, 10, 12, 14]]
    assert np.fromfile(tmp_path / "sum.raw", "<f4").sum() == 56
    assert f"{tmp_path}/sum.raw: 32 bytes\n" in done.stderr


def test_stream_of_a_decoupled_model(trireme: Run, protocol: str, tmp_path: Path) -> None:
    words = ["infer", "storyteller", "We", "max_words=3"]
    assert trireme(*words, protocol=protocol).stdout == "We rowed through \n"
    lines = [json.loads(line) for line in trireme(*words, "--json", protocol=protocol).stdout.splitlines()]
    texts = [output["data"] for line in lines for output in line["outputs"]]
    assert texts == [["We "], ["rowed "], ["through "]]
    assert trireme(*words, "-o", f"{tmp_path}/story.txt", protocol=protocol).returncode == 0
    assert (tmp_path / "story.txt").read_text() == "We rowed through "


def test_pieces_are_shown_as_they_come(server: object, protocol: str) -> None:
    words = [TRIREME, "infer", "storyteller", "We", "max_words=12", *server.words(protocol)]  # type: ignore[attr-defined]
    times = []
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while os.read(process.stdout.fileno(), 4096):
            times.append(time.monotonic())
    assert len(times) > 6  # the model pauses between its words
    assert times[-1] - times[0] > 0.2


def test_language_model_streams_and_takes_parameters(trireme: Run, protocol: str) -> None:
    words = ["infer", "scribe", "Once upon a time", "-p", "max_tokens=8", "-p", "temperature=0"]
    streamed = trireme(*words, protocol=protocol)
    assert streamed.returncode == 0, streamed.stderr
    lines = trireme(*words, "--json", protocol=protocol).stdout.splitlines()
    assert len([line for line in lines if json.loads(line)["outputs"]]) > 2
    whole = trireme(*words, "--no-stream", protocol=protocol)
    assert whole.stdout.strip() == streamed.stdout.strip() != ""


def test_without_inputs_it_shows_what_the_model_takes_and_a_line_that_works(trireme: Run, protocol: str) -> None:
    for model in ("adder", "shout", "storyteller", "scribe"):
        shown = trireme("infer", model, protocol=protocol)
        assert shown.returncode == 0, shown.stderr
        line = shown.stdout.splitlines()[-1].strip()
        done = subprocess.run(
            f"{Path(TRIREME).parent}/{line}", shell=True, capture_output=True, timeout=90, check=False
        )
        assert done.returncode == 0, (line, done.stderr)
        assert done.stdout.strip()
    described = json.loads(trireme("infer", "storyteller", "--json", protocol=protocol).stdout)
    assert [entry["is_optional"] for entry in described["inputs"]] == [False, True]


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (["addr", "A=1"], 4, "has no model 'addr'; did you mean 'adder'?"),
        (["adder", "--version", "9"], 4, "version 1 is READY"),
        (["adder", "A=1,2,3,4"], 2, "an input is missing: 'B' (FP32 [-1, 4])"),
        (["adder", "A=1,2,3", "B=1,2,3,4"], 2, "takes FP32 [-1, 4], a batch first; 3 values were given"),
        (["adder", "A=@/none/a.npy", "B=1"], 2, "'/none/a.npy' cannot be read: No such file or directory"),
        (["shout", "hi", "-o", "/none/a.txt"], 2, "there is no folder '/none'"),
        (["shout", "hi", "-H", "nonsense"], 2, "is no header of the form"),
        (["shout", "hi", "--timeout", "0"], 2, "--timeout takes seconds"),
        (["shout", "hi", "--nonsense"], 2, "unrecognized arguments: --nonsense"),
        (["shout", "--shape", "text_input=2,1", '["a", "b"]'], 1, "text_input"),
    ],
)
def test_mistakes_are_told_with_their_exit_code(
    trireme: Run, protocol: str, words: list[str], code: int, reason: str
) -> None:
    done = trireme("infer", *words, protocol=protocol)
    assert reason in done.stderr
    assert (done.returncode, done.stdout) == (code, "")


@pytest.mark.parametrize("flags", [[], ["--grpc"]])
def test_server_that_is_not_there(flags: list[str]) -> None:
    words = [TRIREME, "infer", "adder", "--url", "127.0.0.1:9", *flags]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert "127.0.0.1:9: connection refused" in done.stderr


@pytest.mark.parametrize("flags", [[], ["--grpc"]])
def test_server_that_says_nothing(flags: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"127.0.0.1:{silent.getsockname()[1]}"
        words = [TRIREME, "infer", "adder", "--url", url, "--timeout", "0.5", *flags]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert "did not answer within 0.5 s" in done.stderr


@pytest.mark.parametrize(("protocol", "other"), [("http", "grpc"), ("grpc", "http")])
def test_port_of_the_other_protocol(server: object, protocol: str, other: str) -> None:
    flags = ["--grpc"] if protocol == "grpc" else []
    url = f"127.0.0.1:{server.ports[other]}"  # type: ignore[attr-defined]
    words = [TRIREME, "infer", "adder", "--url", url, *flags]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert "--grpc" in done.stderr


def test_answer_that_breaks_off_is_told() -> None:
    """A server that ends in the middle of its answer."""

    def answer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        words = [TRIREME, "infer", "adder", "--url", f"127.0.0.1:{listener.getsockname()[1]}"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        thread.join()
    assert done.returncode == 3
    assert "broke" in done.stderr


def test_terminal_gets_the_time_and_no_colour_means_none(server: object) -> None:
    for variables, has_colour in (({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False)):
        pid, screen = pty.fork()
        if pid == 0:
            words = ["infer", "adder", "A=1,2,3,4", "B=1,2,3,4", *server.words("http")]  # type: ignore[attr-defined]
            environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
            os.execve(TRIREME, [TRIREME, *words], {**environment, **variables})
        shown = b""
        while select.select([screen], [], [], 60)[0]:
            try:
                shown += os.read(screen, 65536)
            except OSError:
                break
        os.close(screen)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert b" s]" in shown
        assert (b"\x1b[" in shown) == has_colour
