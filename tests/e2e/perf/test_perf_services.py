"""`trireme perf` against servers that are no Triton, and against a repository that nobody serves yet."""

from __future__ import annotations

import base64
import json
import os
import shlex
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from copying_model import COPY
from other_services import echo_service, tensorflow_serving, torchserve
from running_server import write_model


def perf(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trireme", "perf", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_torchserve_gets_the_files_that_the_input_data_names(tmp_path: Path) -> None:
    contents = [b"first\r\n--trireme-perf\r\n", b"\x00second"]
    for number, content in enumerate(contents):
        (tmp_path / f"{number}.bin").write_bytes(content)
    entries = [{"TORCHSERVE_INPUT": [str(tmp_path / f"{number}.bin")]} for number in range(2)]
    (tmp_path / "data.json").write_text(json.dumps({"data": entries}))
    seen: list[tuple[str, bytes]] = []
    with torchserve(seen) as url:
        run = perf(
            tmp_path, "--service-kind", "torchserve", "-m", "known", "-x", "2.0", "-u", url, "--input-data",
            "data.json", "--request-count", "4", "-f", "out.csv", "--profile-export-file", "out.json",
        )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "  Service Kind: TORCHSERVE\n" in run.stdout
    assert "    Request count: 4\n" in run.stdout
    assert seen == [("/predictions/known/2.0", contents[number % 2]) for number in range(4)]
    assert (tmp_path / "out.csv").read_text().startswith("Concurrency,Inferences/Second,Client Send,Client Recv,p50")
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["service_kind"] == "torchserve"
    requests = document["experiments"][0]["requests"]
    assert requests[0]["request_inputs"] == {"TORCHSERVE_INPUT": ""}
    assert requests[0]["response_outputs"] == [{"response": json.dumps({"length": len(contents[0])})}]


def test_what_torchserve_refuses_is_said(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text(json.dumps({"data": [{"TORCHSERVE_INPUT": [__file__]}]}))
    with torchserve([]) as url:
        run = perf(
            tmp_path, "--service-kind", "torchserve", "-m", "nobody", "-u", url, "--input-data", "data.json"
        )  # fmt: skip
    assert run.returncode == 99
    assert "Thread [0] had error: Model not found\n" in run.stderr


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"IN": [1]}, "'data.json', entry 0: there is no \"TORCHSERVE_INPUT\" with the path of a file"),
        ({"TORCHSERVE_INPUT": ["/no/such"]}, "entry 0: failed to read '/no/such': No such file or directory"),
    ],
)
def test_files_for_torchserve_that_are_not_there_are_told(tmp_path: Path, entry: Any, sentence: str) -> None:
    (tmp_path / "data.json").write_text(json.dumps({"data": [entry]}))
    run = perf(tmp_path, "--service-kind", "torchserve", "-m", "m", "--input-data", "data.json")
    assert run.returncode == 99
    assert sentence in run.stderr


def test_tensorflow_serving_gets_predictions_by_its_signature(tmp_path: Path) -> None:
    data = [{"x": [1.0, 2.0, 3.0, 4.0], "words": ["a", "bc"]}]
    (tmp_path / "data.json").write_text(json.dumps({"data": data, "validation_data": [{"y": [1.0, 2.5]}]}))
    seen: list[Any] = []
    with tensorflow_serving(seen) as url:
        run = perf(
            tmp_path, "--service-kind", "tfserving", "-i", "grpc", "-m", "known", "-x", "3", "-u", url, "-b", "2",
            "--input-data", "data.json", "--request-count", "3", "--profile-export-file", "out.json",
        )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "  Batch size: 2\n  Service Kind: TENSORFLOW_SERVING\n" in run.stdout
    assert "    Avg gRPC time: " in run.stdout
    assert len(seen) == 3
    spec = seen[0].model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("known", 3, "serving_default")
    assert [dim.size for dim in seen[0].inputs["x"].tensor_shape.dim] == [2, 4]
    assert seen[0].inputs["x"].tensor_content == struct.pack("<8f", 1, 2, 3, 4, 1, 2, 3, 4)
    assert list(seen[0].inputs["words"].string_val) == [b"a", b"bc", b"a", b"bc"]
    request = json.loads((tmp_path / "out.json").read_text())["experiments"][0]["requests"][0]
    assert request["response_outputs"] == [{"y": [1.0, 2.5, 1.0, 2.5]}]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("-m", "known"), "input words contains dynamic shape, provide shapes to send along with the request"),
        (("-m", "nobody"), "failed to get model metadata: Servable not found for request: Latest(nobody)"),
        (
            ("-m", "known", "--model-signature-name", "other"),
            'Failed to find signature_name "other" in the metadata; there is: serving_default',
        ),
    ],
)
def test_what_tensorflow_serving_does_not_have_is_said(tmp_path: Path, words: tuple[str, ...], sentence: str) -> None:
    with tensorflow_serving([]) as url:
        run = perf(tmp_path, "--service-kind", "tfserving", "-i", "grpc", "-u", url, *words)
    assert run.returncode == 99
    assert sentence in run.stderr


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_repository_is_measured_without_a_server(tmp_path: Path, protocol: str) -> None:
    write_model(tmp_path, "copy", COPY)
    write_model(tmp_path, "other", "raise RuntimeError('is not needed')")
    run = perf(
        tmp_path, "--service-kind", "triton_c_api", "--model-repository", "model_repository",
        "--triton-server-directory", "/opt/tritonserver", "-i", protocol, "-m", "copy",
        "--shape", "IN:4", "--request-count", "5",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "  Service Kind: TRITON_C_API\n" in run.stdout
    assert "    Request count: 5\n" in run.stdout
    assert "    Successful request count: 5\n" in run.stdout


def test_a_model_that_does_not_load_is_told_with_the_servers_words(tmp_path: Path) -> None:
    write_model(tmp_path, "broken", "raise RuntimeError('it cannot be')")
    run = perf(tmp_path, "--service-kind", "triton_c_api", "--model-repository", "model_repository", "-m", "broken")
    assert run.returncode == 99
    assert "error: failed to create triton client backend: load failed for model 'broken'" in run.stderr
    assert "it cannot be" in run.stderr


WRITE = """
import struct, sys
for text in sys.argv[1:]:
    sys.stdout.buffer.write(struct.pack("<I", len(text)) + text.encode())
"""
ECHO = ("--service-kind", "dynamic_grpc", "-m", "echo", "--input-data", "data.json", "--request-count", "4")


def write_entries(folder: Path, *entries: Any) -> None:
    (folder / "data.json").write_text(json.dumps({"data": entries}))


def test_any_grpc_method_gets_messages_and_each_response_is_kept(tmp_path: Path) -> None:
    (tmp_path / "write.py").write_text(WRITE)
    command = f"{shlex.quote(sys.executable)} write.py first 'and second'"
    large = b"x" * 200_000
    messages = [{"b64": base64.b64encode(large).decode()}]
    write_entries(tmp_path, {"message_generator": command}, {"messages": messages})
    seen: list[list[bytes]] = []
    with echo_service(seen) as url:
        run = perf(
            tmp_path, *ECHO, "--grpc-method", "echo.Echo/Twice", "-u", url, "--profile-export-file", "out.json"
        )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "  Service Kind: DYNAMIC_GRPC\n" in run.stdout
    assert "    Request count: 4\n" in run.stdout
    assert "Avg gRPC time: " in run.stdout
    assert seen == [[b"first", b"and second"], [large]] * 2
    requests = json.loads((tmp_path / "out.json").read_text())["experiments"][0]["requests"]
    texts = [[base64.b64decode(one["response"]["b64"]) for one in each["response_outputs"]] for each in requests]
    assert texts == [[b"first", b"first", b"and second", b"and second"], [large, large]] * 2
    for each in requests:
        assert len(each["response_timestamps"]) == len(each["response_outputs"])
        assert sorted(each["response_timestamps"]) == each["response_timestamps"]


@pytest.mark.parametrize(
    ("method", "sentence"),
    [("echo.Echo/Refuse", "Thread [0] had error: not for you"), ("echo.Echo/Nothing", "Method not found!")],
)
def test_what_a_grpc_service_refuses_is_said(tmp_path: Path, method: str, sentence: str) -> None:
    write_entries(tmp_path, {"messages": [{"b64": ""}]})
    with echo_service([]) as url:
        run = perf(tmp_path, *ECHO, "--grpc-method", method, "-u", url)
    assert run.returncode == 99
    assert sentence in run.stderr


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"IN": [1]}, 'entry 0: there is no "message_generator" with a command that writes messages, and no'),
        ({"messages": ["aGk="]}, 'entry 0: a message is {"b64": ...} with base64'),
        ({"message_generator": "exit 3"}, "entry 0: 'exit 3' ended with exit code 3"),
        ({"message_generator": "true"}, "entry 0: the command writes no message"),
        ({"message_generator": "printf 12345678"}, "ends inside a message: each is its length, four bytes"),
    ],
)
def test_messages_that_are_none_are_told(tmp_path: Path, entry: Any, sentence: str) -> None:
    write_entries(tmp_path, entry)
    run = perf(tmp_path, *ECHO, "--grpc-method", "echo.Echo/Twice")
    assert run.returncode == 99
    assert sentence in run.stderr


def test_ctrl_c_ends_a_command_that_still_writes_messages(tmp_path: Path) -> None:
    (tmp_path / "wait.py").write_text(
        "import os, sys, time\nprint(os.getpid(), file=sys.stderr, flush=True)\ntime.sleep(60)"
    )
    write_entries(tmp_path, {"message_generator": f"exec {shlex.quote(sys.executable)} wait.py"})
    words = [sys.executable, "-m", "trireme", "perf", *ECHO, "--grpc-method", "echo.Echo/Twice"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        writer = int(run.stderr.readline())
        run.send_signal(signal.SIGINT)
        assert run.wait(timeout=20) == 130
        with pytest.raises(ProcessLookupError):
            os.kill(writer, 0)


def test_a_grpc_service_that_is_down_is_said(tmp_path: Path) -> None:
    write_entries(tmp_path, {"messages": [{"b64": ""}]})
    with echo_service([]) as url:
        pass
    run = perf(tmp_path, *ECHO, "--grpc-method", "echo.Echo/Twice", "-u", url)
    assert run.returncode == 99
    assert "Connection refused" in run.stderr
