"""What goes wrong: no leave, no room, no server, a file that is cut, and an end before the end."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from running_server import RunningServer, write_model
from waiting import until

from trireme.tools.client.errors import InputError
from trireme.tools.record.reading import RecordingReader

TRIREME = str(Path(sys.executable).with_name("trireme"))
Run = Callable[..., "subprocess.CompletedProcess[str]"]
SLOW = """
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.05)
        given = [pb_utils.get_input_tensor_by_name(request, "IN") for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", tensor.as_numpy())]) for tensor in given]
"""


def calls_in(path: Path) -> list[Any]:
    recording = RecordingReader(str(path))
    try:
        return [call for _, call in recording.calls()]
    finally:
        recording.close()


def count_in(path: Path) -> int:
    """The requests in a file that is being written, and may have no beginning yet."""
    try:
        return len(calls_in(path))
    except InputError:
        return 0


def test_ctrl_c_ends_a_recording_in_good_order(server: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    with server.recording(path) as process:
        for value in range(5):
            server.infer("double", value)
        assert server.metric("trireme_recording_active") == {(): 1.0}
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "5 of 5 requests" in told
    assert not server.is_recording()
    assert server.metric("trireme_recording_active") == {(): 0.0}
    assert len(calls_in(path)) == 5
    assert "start a recording of all requests to all models: done" in server.log
    assert "stop the recording: done" in server.log


def test_sampled(server: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    with server.recording(path, "--sample", "0.2") as process:
        for value in range(200):
            server.infer("double", value)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert 10 <= len(calls_in(path)) <= 80  # of 200 with a share of 0.2, the chance of others is below one in a million


def test_a_full_disk_ends_the_recording_and_not_the_server(server: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    command = [TRIREME, "record", server.url, "-o", str(path)]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=limit) as process:
        until(server.is_recording)
        for value in range(100):
            assert server.infer("double", *([value] * 100))[0] == 200
        _, told = process.communicate(timeout=60)
    assert process.returncode == 5
    assert "File too large" in told
    assert f"keeps the {len(calls_in(path))} requests before it" in told
    assert 0 < len(calls_in(path)) < 100
    until(lambda: not server.is_recording())
    assert server.infer("double", 1)[0] == 200


def test_a_client_that_is_killed_leaves_a_file_and_a_server_that_records_no_more(server: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    with server.recording(path) as process:
        for value in range(20):
            server.infer("double", value)
        until(lambda: count_in(path) == 20)
        process.kill()
    refused = subprocess.run(
        [TRIREME, "record", server.url, "-o", str(tmp_path / "b.rec")], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 1
    assert "recording already" in refused.stderr
    assert not (tmp_path / "b.rec").exists()
    stopped = subprocess.run([TRIREME, "record", server.url, "--stop"], capture_output=True, text=True, check=True)
    assert json.loads(stopped.stdout)["recorded"] == 20
    assert not server.is_recording()
    until(lambda: started(server, tmp_path / "d.rec"))  # two seconds after the last fetch
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 5)
    assert len(calls_in(path)) == 19


def test_a_command_that_was_killed_goes_on_where_its_file_breaks_off(server: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    with server.recording(path) as process:
        for value in range(10):
            server.infer("double", value)
        until(lambda: count_in(path) == 10)
        process.kill()
    server.infer("double", 10)
    command = [TRIREME, "record", server.url, "-o", str(path), "--append"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: count_in(path) == 11)
        server.infer("double", 11)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "goes on recording requests" in told
    assert f"{path}: 2 of 12 requests" in told
    given = [int.from_bytes(call.inputs[0].data[:4], "little") for call in calls_in(path)]
    assert given == list(range(12))


def started(server: Any, path: Path) -> bool:
    """Whether a new recording can be begun, and comes to its end."""
    words = ["record", server.url, "-o", str(path), "--duration", "0.2"]
    return subprocess.run([TRIREME, *words], capture_output=True, check=False).returncode == 0


def test_after_a_stop_by_somebody_else_the_file_is_whole(server: Any, tmp_path: Path, trireme: Run) -> None:
    path = tmp_path / "a.rec"
    with server.recording(path) as process:
        server.infer("double", 1)
        assert trireme("record", server.url, "--stop").returncode == 0
        _, told = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "1 of 1 requests" in told
    assert "it was stopped" in told


def test_words_that_cannot_be_used(server: Any, tmp_path: Path, trireme: Run) -> None:
    (tmp_path / "there.rec").write_text("something")
    for words, told in (
        ([], "-o FILE"),
        (["-o", tmp_path / "there.rec"], "is there already"),
        (["-o", tmp_path / "a.rec", "--sample", "2"], "--sample"),
        (["-o", tmp_path / "a.rec", "--max-size", "much"], "--max-size"),
        (["-o", tmp_path / "no" / "a.rec"], "No such file"),
        (["-o", tmp_path / "there.rec", "--append"], "cannot append"),
    ):
        done = trireme("record", server.url, *words)
        assert (done.returncode, told in done.stderr) == (2, True), done.stderr
    assert (tmp_path / "there.rec").read_text() == "something"
    for words, told in (
        ([tmp_path / "there.rec"], "is no recording"),
        ([tmp_path / "nowhere.rec"], "No such file"),
        ([tmp_path / "there.rec", "--speed", "0"], "--speed"),
        ([tmp_path / "there.rec", "--map", "x"], "OLD=NEW"),
    ):
        done = trireme("replay", *words, "--url", server.url)
        assert (done.returncode, told in done.stderr) == (2, True), done.stderr


def test_a_server_that_may_not_be_recorded(tmp_path: Path, trireme: Run) -> None:
    write_model(tmp_path, "slow", SLOW)
    with RunningServer(tmp_path) as server:
        server.wait_until_ready()
        done = trireme("record", f"127.0.0.1:{server.ports['http']}", "-o", tmp_path / "a.rec")
        assert done.returncode == 1
        assert "--allow-recording=true" in done.stderr
        assert not (tmp_path / "a.rec").exists()
        assert "trireme_record" not in server.metrics_page()
        assert "start a recording of all requests to all models: failed" in server.log


def test_only_a_key_of_the_group_may_record(tmp_path: Path, trireme: Run) -> None:
    write_model(tmp_path, "slow", SLOW)
    keys = tmp_path / "keys.toml"
    usual = trireme("keys", "new", keys, "client").stdout.strip()
    control = trireme("keys", "new", keys, "control", "--groups", "model-repository").stdout.strip()
    recording = trireme("keys", "new", keys, "auditor", "--groups", "recording").stdout.strip()
    flags = ("--api-keys=keys.toml", "--allow-recording=true")
    with RunningServer(tmp_path, *flags) as server:
        until(lambda: "Started Metrics" in server.log, timeout_s=60)
        words = ["record", f"127.0.0.1:{server.ports['http']}", "-o", tmp_path / "a.rec", "--duration", "0.5"]
        for key, told in (
            ("", "a valid API key is needed"),
            (usual, "'client' is not allowed"),
            (control, "'control'"),
        ):
            done = trireme(*words, *(["--key", key] if key else []))
            assert (done.returncode, told in done.stderr) == (1, True), done.stderr
        done = trireme(*words, "--key", recording)
        assert done.returncode == 0, done.stderr
        assert "audit: 'auditor'" in server.log


def test_a_restricted_api_needs_its_header(tmp_path: Path, trireme: Run) -> None:
    write_model(tmp_path, "slow", SLOW)
    flags = ("--allow-recording=true", "--http-restricted-api=recording:X-Admin=secret")
    with RunningServer(tmp_path, *flags) as server:
        server.wait_until_ready()
        words = ["record", f"127.0.0.1:{server.ports['http']}", "-o", tmp_path / "a.rec", "--duration", "0.5"]
        done = trireme(*words)
        assert done.returncode == 1
        assert "X-Admin" in done.stderr
        assert trireme(*words, "-H", "X-Admin: secret").returncode == 0


@pytest.fixture
def dying(tmp_path: Path) -> Any:
    write_model(tmp_path, "slow", SLOW)
    with RunningServer(tmp_path, "--allow-recording=true") as server:
        server.wait_until_ready()
        yield server


def test_a_server_that_dies_while_it_is_recorded(dying: RunningServer, tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    command = [TRIREME, "record", f"127.0.0.1:{dying.ports['http']}", "-o", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: b'"is_active":true' in dying.ask("GET", "/v2/recording")[2])
        for value in range(5):
            dying.infer("slow", value)
        until(lambda: count_in(path) == 5)
        dying.process.kill()
        dying.process.wait()
        _, told = process.communicate(timeout=30)
    assert process.returncode == 3
    assert "error:" in told
    assert len(calls_in(path)) == 5


def test_a_server_that_dies_half_way_through_a_replay(dying: RunningServer, tmp_path: Path, trireme: Run) -> None:
    url = f"127.0.0.1:{dying.ports['http']}"
    path = record_many(dying, url, tmp_path, 60)
    report = tmp_path / "r.json"
    command = [TRIREME, "replay", str(path), url, "--speed", "max", "--connections", "1", "--json", str(report)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        before = dying.statistics("slow")["inference_stats"]["success"]["count"]
        until(lambda: dying.statistics("slow")["inference_stats"]["success"]["count"] >= before + 5)
        dying.process.kill()
        dying.process.wait()
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "INCOMPLETE: the server did not answer 10 requests in a row" in out
    found = json.loads(report.read_text())
    assert found["is_complete"] is False
    assert found["verdicts"]["same"] >= 4
    assert found["verdicts"]["no answer"] == 10
    assert found["sent"] < 60
    done = trireme("replay", path, url)
    assert (done.returncode, "connection refused" in done.stderr) == (3, True)


def test_ctrl_c_reports_what_there_is(dying: RunningServer, tmp_path: Path) -> None:
    url = f"127.0.0.1:{dying.ports['http']}"
    path = record_many(dying, url, tmp_path, 60)
    command = [TRIREME, "replay", str(path), url, "--speed", "0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        before = dying.statistics("slow")["inference_stats"]["success"]["count"]
        until(lambda: dying.statistics("slow")["inference_stats"]["success"]["count"] >= before + 2)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "INCOMPLETE: Ctrl+C" in out
    assert " of 60 requests" in out
    assert time.monotonic() - began < 20


def test_a_second_server_that_dies_half_way_through_a_replay(dying: RunningServer, tmp_path: Path) -> None:
    url = f"127.0.0.1:{dying.ports['http']}"
    path = record_many(dying, url, tmp_path, 60)
    folder = tmp_path / "living"
    folder.mkdir()
    write_model(folder, "slow", SLOW)
    with RunningServer(folder) as living:
        living.wait_until_ready()
        place = f"127.0.0.1:{living.ports['http']}"
        command = [TRIREME, "replay", str(path), place, "--baseline", url, "--speed", "max", "--connections", "1"]
        before = dying.statistics("slow")["inference_stats"]["success"]["count"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            until(lambda: dying.statistics("slow")["inference_stats"]["success"]["count"] >= before + 5)
            dying.process.kill()
            dying.process.wait()
            out, _ = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "INCOMPLETE: the server to compare with did not answer 10 requests in a row" in out
    assert "10 requests were not answered." in out


def record_many(server: RunningServer, url: str, folder: Path, count: int) -> Path:
    path = folder / "many.rec"
    command = [TRIREME, "record", url, "-o", str(path), "--limit", str(count)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=dict(os.environ)) as process:
        until(lambda: b'"is_active":true' in server.ask("GET", "/v2/recording")[2])
        for value in range(count):
            server.infer("slow", value)
        assert process.wait(30) == 0
    return path
