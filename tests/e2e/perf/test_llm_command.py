"""`trireme perf llm`, the command line of genai-perf, against models that stream."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_server import RunningServer

EXAMPLES = Path(__file__).parents[3] / "examples/model_repository"


@pytest.fixture(scope="module")
def scribe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("scribe")
    shutil.copytree(EXAMPLES / "scribe", folder / "model_repository" / "scribe")
    with RunningServer(folder) as running:
        running.wait_until_listening()
        yield running


@pytest.mark.parametrize(
    ("endpoint_type", "port", "load"),
    [
        ("chat", "http", ("--concurrency", "2")),
        ("completions", "http", ("--request-rate", "10")),
        ("generate", "http", ("--concurrency", "1")),
        ("kserve", "grpc", ("--concurrency", "2")),
    ],
)
def test_tokens_are_measured(
    scribe: RunningServer, tmp_path: Path, endpoint_type: str, port: str, load: tuple[str, ...]
) -> None:
    words = ["-m", "scribe", "--endpoint-type", endpoint_type, "-u", f"127.0.0.1:{scribe.ports[port]}", "--streaming"]
    words += ["--isl", "12", "--osl", "8", "--request-count", "6", "--artifact-dir", "out", *load]
    command = [sys.executable, "-m", "trireme", "perf", "llm", *words]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr
    assert "Prompts have 12 words, which may be more tokens: --tokenizer makes them to the token.\n" in run.stderr
    assert "Time To First Token (ms)" in run.stdout
    (folder,) = (tmp_path / "out").iterdir()
    document = json.loads((folder / "profile_export_genai_perf.json").read_text())
    assert document["request_count"]["avg"] == 6
    assert 1 <= document["output_sequence_length"]["avg"] <= 8.5
    first, latency = document["time_to_first_token"], document["request_latency"]
    assert 0 < first["min"] <= first["avg"] < latency["avg"]
    with (folder / "profile_export_genai_perf.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0][:4] == ["Metric", "avg", "min", "max"]
    assert len(json.loads((folder / "profile_export.json").read_text())["experiments"][0]["requests"]) == 6
    sent = json.loads((folder / "inputs.json").read_text())["data"]
    assert len(sent) == 100
    if endpoint_type == "kserve":
        assert len(sent[0]["text_input"][0].split()) == 12
        assert json.loads(sent[0]["sampling_parameters"][0])["max_tokens"] == "8"
    else:
        assert sent[0]["payload"][0]["max_tokens"] == 8


@pytest.mark.parametrize("warm_up", ["0", "1"])
def test_prompts_fit_a_model_of_short_contexts_unless_their_length_is_given(
    scribe: RunningServer, tmp_path: Path, warm_up: str
) -> None:
    words = ["-m", "scribe", "-u", f"127.0.0.1:{scribe.ports['grpc']}", "--streaming", "--request-count", "2"]
    words += ["--osl", "4", "--warmup-request-count", warm_up, "--artifact-dir", "out"]
    command = [sys.executable, "-m", "trireme", "perf", "llm", *words]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr
    found = re.search(r"The run begins again with shorter prompts, as with --isl (\d+)\.\n", run.stderr)
    assert found is not None, run.stderr
    assert f"Prompts have {found[1]} words" in run.stderr
    assert "the model takes 512" in run.stderr
    document = json.loads((tmp_path / "out/scribe-kserve-concurrency1/profile_export_genai_perf.json").read_text())
    assert 100 < document["input_sequence_length"]["avg"] < 512
    asked = subprocess.run(
        [*command, "--isl", "550"], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert asked.returncode != 0
    assert f"--isl {found[1]} makes prompts that fit" in asked.stderr
    assert "begins again" not in asked.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_prints_what_there_is(scribe: RunningServer, tmp_path: Path, number: int) -> None:
    shown_first = r"100000 requests to answer, .* \d\d+ answered, 1 under way"
    code, output, shown = signalled(scribe, tmp_path, number, shown_first, "--request-count", "100000")
    assert code == 0, shown
    assert "Time To First Token (ms)" in output
    assert "Interrupted: the numbers are of the requests that were answered." in shown


def test_a_signal_in_the_warm_up_measures_nothing(scribe: RunningServer, tmp_path: Path) -> None:
    words = ["--warmup-request-count", "100000", "--request-count", "2"]
    shown_first = r"warm-up, .* \d\d+ answered, 1 under way"
    code, output, shown = signalled(scribe, tmp_path, signal.SIGINT, shown_first, *words)
    assert code == 130, output
    assert "Interrupted before the measurement began." in shown
    assert "Request Latency (ms)" not in output


def signalled(scribe: RunningServer, folder: Path, number: int, shown_first: str, *more: str) -> tuple[int, str, str]:
    """The exit code, output and terminal of a load that gets a signal once this is shown."""
    words = ["-m", "scribe", "-u", f"127.0.0.1:{scribe.ports['grpc']}", "--streaming", "--isl", "8", "--osl", "8"]
    command = [sys.executable, "-m", "trireme", "perf", "llm", *words, *more, "--artifact-dir", "out", "--progress"]
    terminal, other = os.openpty()
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=other, text=True) as process:
        os.close(other)
        shown = ""
        while not re.search(shown_first, shown, re.DOTALL):
            shown += os.read(terminal, 10000).decode()
        process.send_signal(number)
        with contextlib.suppress(OSError):  # which ends a terminal whose other side is closed
            while part := os.read(terminal, 10000):
                shown += part.decode()
        output, _ = process.communicate(timeout=30)
    os.close(terminal)
    return process.returncode, output, shown


def test_plots_are_pages_with_a_mark_for_every_request(scribe: RunningServer, tmp_path: Path) -> None:
    place = f"127.0.0.1:{scribe.ports['http']}"
    words = ["-m", "scribe", "--endpoint-type", "chat", "-u", place, "--streaming", "--isl", "8", "--osl", "4"]
    words += ["--request-count", "5", "--artifact-dir", "out", "--generate-plots"]
    command = [sys.executable, "-m", "trireme", "perf", "llm", *words]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr
    assert "has no effect" not in run.stderr
    pages = {path.stem: path.read_text() for path in (tmp_path / "out/scribe-chat-concurrency1/plots").iterdir()}
    assert sorted(pages) == [
        "distribution_of_input_sequence_lengths_to_output_sequence_lengths",
        "request_latency",
        "time_to_first_token",
        "time_to_first_token_vs_input_sequence_lengths",
        "token-to-token_latency_vs_output_token_position",
    ]
    for name in ("request_latency", "time_to_first_token", "time_to_first_token_vs_input_sequence_lengths"):
        assert pages[name].count('<circle class="mark"') == 5
        assert f"Wrote out/scribe-chat-concurrency1/plots/{name}.html\n" in run.stdout


def test_answers_in_one_piece_have_no_first_token(scribe: RunningServer, tmp_path: Path) -> None:
    place = f"127.0.0.1:{scribe.ports['http']}"
    words = ["-m", "scribe", "--endpoint-type", "chat", "-u", place, "--isl", "8", "--osl", "4", "--request-count", "3"]
    command = [sys.executable, "-m", "trireme", "perf", "llm", *words]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr
    assert "Request Latency (ms)" in run.stdout
    assert "Time To First Token" not in run.stdout


def test_an_unknown_model_is_said(scribe: RunningServer, tmp_path: Path) -> None:
    for kind, port in (("chat", "http"), ("kserve", "grpc")):
        words = ["-m", "nobody", "--endpoint-type", kind, "-u", f"127.0.0.1:{scribe.ports[port]}"]
        command = [sys.executable, "-m", "trireme", "perf", "llm", *words]
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
        assert run.returncode == 99
        assert "nobody" in run.stderr


def test_payloads_are_sent_as_they_are(scribe: RunningServer, tmp_path: Path) -> None:
    body = {"model": "scribe", "messages": [{"role": "user", "content": "Hi"}], "stream": True, "max_tokens": 4}
    (tmp_path / "payloads.json").write_text(json.dumps({"data": [{"payload": [body]}]}))
    words = [
        "-m",
        "scribe",
        "--service-kind",
        "openai",
        "--endpoint",
        "v1/chat/completions",
        "--input-data",
        "payloads.json",
    ]
    words += [
        "-u",
        f"127.0.0.1:{scribe.ports['http']}",
        "--streaming",
        "--request-count",
        "4",
        "--concurrency-range",
        "2",
    ]
    command = [sys.executable, "-m", "trireme", "perf", *words, "--profile-export-file", "p.json"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr
    assert "  Service Kind: OPENAI\n" in run.stdout
    assert "    Request count: 4\n" in run.stdout
    document = json.loads((tmp_path / "p.json").read_text())
    assert (document["service_kind"], document["endpoint"]) == ("openai", "v1/chat/completions")
    request = document["experiments"][0]["requests"][0]
    assert json.loads(request["request_inputs"]["payload"]) == body
    assert request["response_outputs"][-1] == {"response": "[DONE]"}
