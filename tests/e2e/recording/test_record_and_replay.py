"""Requests of real clients, recorded from one server and played back against it and against others."""

from __future__ import annotations

import json
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

from trireme.tools.record.reading import RecordingReader

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def numbers(client: Any, *values: int) -> Any:
    given = client.InferInput("IN", [1, len(values)], "INT32")
    given.set_data_from_numpy(np.array([values], np.int32))
    return given


def ask_every_way(server: Any) -> None:
    """Twelve requests: unary and streamed, sequences in turns, errors, shared memory, over both protocols."""
    with (
        httpclient.InferenceServerClient(server.url) as http,
        grpcclient.InferenceServerClient(server.grpc_url) as grpc,
    ):
        http.infer("double", [numbers(httpclient, 1, 2)], request_id="first")
        grpc.infer("double", [numbers(grpcclient, 3)])
        with pytest.raises(InferenceServerException, match="no negative"):
            http.infer("double", [numbers(httpclient, -1)])
        with pytest.raises(InferenceServerException, match="unexpected shape"):
            http.infer("total", [numbers(httpclient, 1, 2, 3)], sequence_id=5, sequence_start=True)
        for step, (key, value) in enumerate([(7, 1), (8, 5), (7, 2), (8, 6), (7, 3)]):
            flags = {"sequence_start": step < 2, "sequence_end": step > 2}
            client, module = (http, httpclient) if step % 2 else (grpc, grpcclient)
            client.infer("total", [numbers(module, value)], sequence_id=key, **flags)
        answers: list[Any] = []
        grpc.start_stream(lambda result, error: answers.append((result, error)))
        for count in (3, 0):
            grpc.async_stream_infer("count", [numbers(grpcclient, count)])
        grpc.stop_stream()
        assert len(answers) == 3
        ask_in_shared_memory(http)


def ask_in_shared_memory(http: Any) -> None:
    region = shm.create_shared_memory_region("both", "/trireme_recorded", 16384)
    try:
        shm.set_shared_memory_region(region, [np.arange(2000, dtype=np.int32)])
        http.register_system_shared_memory("both", "/trireme_recorded", 16384)
        given = httpclient.InferInput("IN", [1, 2000], "INT32")
        given.set_shared_memory("both", 8000)
        wanted = httpclient.InferRequestedOutput("OUT")
        wanted.set_shared_memory("both", 8000, offset=8000)
        http.infer("double", [given], outputs=[wanted])
        http.unregister_system_shared_memory("both")
    finally:
        shm.destroy_shared_memory_region(region)


@pytest.fixture(scope="module")
def recorded(server: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with what `ask_every_way` asks."""
    path = tmp_path_factory.mktemp("files") / "all.rec"
    with server.recording(path, "--limit", "12") as process:
        ask_every_way(server)
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert "12 of 12 requests" in process.stderr.read()
    assert not server.is_recording()
    return path


def test_what_the_file_holds(recorded: Path) -> None:
    recording = RecordingReader(str(recorded))
    calls = [call for _, call in recording.calls()]
    recording.close()
    assert stat.S_IMODE(recorded.stat().st_mode) == 0o600
    assert [(call.model, call.protocol) for call in calls[:3]] == [
        ("double", "http"),
        ("double", "grpc"),
        ("double", "http"),
    ]
    assert calls[0].request_id == "first"
    assert np.frombuffer(calls[0].responses[0].outputs[0].data, "<i4").tolist() == [2, 4]
    assert calls[2].error == "no negative numbers"
    assert calls[3].error is not None
    assert "unexpected shape" in calls[3].error
    sequence = [call for call in calls if call.correlation_id == 7]
    totals = [int(np.frombuffer(call.responses[0].outputs[0].data, "<i4")[0]) for call in sequence]
    assert totals == [1, 4, 11]
    assert [(call.is_start, call.is_end) for call in sequence] == [(True, False), (False, False), (False, True)]
    streamed = [call for call in calls if call.model == "count"]
    assert [len(call.responses) for call in streamed] == [4, 1]
    (shared,) = [call for call in calls if call.shared_memory]
    assert shared.shared_memory == ("IN", "OUT")
    assert np.frombuffer(shared.responses[0].outputs[0].data, "<i4")[-1] == 3998


@pytest.mark.parametrize(
    "words", [["--url", "HTTP"], ["--url", "GRPC", "--grpc"], ["--url", "HTTP", "--grpc-url", "GRPC"]]
)
def test_the_same_server_answers_the_same(
    server: Any, recorded: Path, trireme: Run, words: list[str], tmp_path: Path
) -> None:
    places = {"HTTP": server.url, "GRPC": server.grpc_url}
    given = [places.get(word, word) for word in words]
    done = trireme("replay", recorded, *given, "--speed", "max", "--json", tmp_path / "r.json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    assert (report["sent"], report["is_complete"]) == (12, True)
    told = {name: count for name, count in report["verdicts"].items() if count}
    assert told == {"same": 10, "same error": 2}
    assert "No answer differs." in done.stdout


def test_another_version_of_a_model_is_told_apart(
    recorded: Path, server: Any, trireme: Run, tmp_path: Path, other: Any
) -> None:
    words = ["--speed", "max", "--json", tmp_path / "r.json", "--html", tmp_path / "r.html"]
    done = trireme("replay", recorded, other.url, *words)
    assert done.returncode == 1
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["verdicts"]["differs"] == 3  # those of double that are no errors
    assert report["models"]["total"]["verdicts"] == {"same": 5, "same error": 1}
    example = min(report["examples"], key=lambda one: int(one["request"]))  # answers come in any order
    assert (example["request"], example["id"]) == (1, "first")
    assert example["details"] == ["output 'OUT': 2 of 2 values, the first at [0, 0]: 2 became 3"]
    assert "3 answers differ or fail" in done.stdout
    page = (tmp_path / "r.html").read_text()
    assert "<svg" in page
    assert "2 became 3" in page
    assert "http" not in page.replace(f"http://{other.url}", "")  # nothing is fetched from elsewhere


def test_two_servers_are_compared_with_each_other(
    recorded: Path, server: Any, other: Any, trireme: Run, tmp_path: Path
) -> None:
    words = ["replay", recorded, other.url, "--speed", "max", "--json", "-"]
    done = trireme(*words, "--baseline", server.url)
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdicts"]["differs"], report["compared_with"]) == (1, 3, f"http://{server.url}")
    stateless = ["--model", "double", "--model", "count"]  # one server would count a sequence's requests twice
    done = trireme(*words, *stateless, "--baseline", other.url)
    assert (done.returncode, json.loads(done.stdout)["verdicts"]["differs"]) == (0, 0)


def test_a_second_server_that_does_not_answer_is_named(recorded: Path, server: Any, trireme: Run) -> None:
    done = trireme("replay", recorded, server.url, "--speed", "max", "--baseline", "127.0.0.1:9")
    assert done.returncode == 3
    assert "no server answers at http://127.0.0.1:9" in done.stderr
    assert "No answer differs" not in done.stdout


@pytest.mark.parametrize("words", [("--rtol", "-1"), ("--atol", "nan"), ("--connections", "0"), ("--limit", "0")])
def test_numbers_that_mean_nothing_are_refused(
    recorded: Path, server: Any, trireme: Run, words: tuple[str, str]
) -> None:
    done = trireme("replay", recorded, server.url, *words)
    assert done.returncode == 2
    assert words[0] in done.stderr


def test_models_can_be_chosen_renamed_and_their_answers_ignored(
    recorded: Path, server: Any, other: Any, trireme: Run
) -> None:
    words = ["replay", recorded, other.url, "--speed", "max", "--json", "-"]
    done = trireme(*words, "--model", "total")
    assert (done.returncode, json.loads(done.stdout)["sent"]) == (0, 6)
    assert trireme(*words, "--ignore", "OUT").returncode == 0
    done = trireme(*words, "--map", "double=nothing")
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdicts"]["fails now"]) == (1, 3)
    assert "nothing" in report["errors"][0]["error"]


@pytest.mark.parametrize("words", [("--map", "duble=total"), ("--model", "total", "--model", "duble")])
def test_a_model_that_is_not_in_the_file_is_a_slip_of_the_pen(
    recorded: Path, server: Any, trireme: Run, words: tuple[str, ...]
) -> None:
    done = trireme("replay", recorded, server.url, "--speed", "max", *words)
    assert done.returncode == 2
    assert "has no requests to 'duble'; did you mean 'double'?" in done.stderr
    assert not done.stdout, "nothing was sent"


def test_its_own_pace_and_a_faster_one(recorded: Path, server: Any, trireme: Run) -> None:
    recording = RecordingReader(str(recorded))
    seconds = recording.contents.seconds
    recording.close()
    slow = json.loads(trireme("replay", recorded, server.url, "--json", "-").stdout)
    fast = json.loads(trireme("replay", recorded, server.url, "--json", "-", "--speed", "20").stdout)
    assert slow["seconds"] >= seconds
    assert fast["seconds"] >= seconds / 20
    assert fast["pace"] == "at 20 times the recorded pace"
    assert slow["verdicts"] == fast["verdicts"]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory, server: Any) -> Iterator[Any]:
    """The same models, one of which answers differently."""
    folder = tmp_path_factory.mktemp("other")
    model_code = Path(server.log_path).parent / "model_repository"
    for model in model_code.iterdir():
        copy = folder / "model_repository" / model.name
        (copy / "1").mkdir(parents=True)
        (copy / "config.pbtxt").write_text((model / "config.pbtxt").read_text())
        code = (model / "1" / "model.py").read_text()
        (copy / "1" / "model.py").write_text(code.replace("given * 2", "given * 3"))
    with type(server)(folder) as running:
        running.wait_until_ready()
        yield running
