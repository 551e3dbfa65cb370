"""What goes wrong during an analysis: clear messages, exit codes, results kept, and the model always put back."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from analyzed_models import SMALL, Analyze, Start, config_of, place_words, wait_for, write_models
from running_server import RunningServer, port_flags


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["sleper"], 4, "has no model 'sleper'; did you mean 'sleeper'?"),
        (["shapeless"], 2, "--shape IN:D with a number"),
        (["sleeper", "--export-path", "/proc/results"], 2, "the folder '/proc/results' cannot be made"),
        (["sleeper", "--ulr", "x"], 2, "Did you mean '--url'?"),
        (["broken"], 1, "it is broken"),
        (["sleeper", "--slo", "p99<fast"], 2, "no bound such as p99<100ms"),
        (["sleeper", "-f", "absent.yaml"], 2, "absent.yaml"),
        (["sleeper", "-f", "bad.yaml"], 2, "'bad.yaml', line 2, column"),
        (["sleeper", "-f", "odd.yaml"], 2, "there is no setting 'objectivs'; did you mean 'objectives'?"),
        (["sleeper", "--triton-launch-mode", "docker"], 2, "a container is not needed"),
        (["sleeper", "--apply"], 2, "--model-repository"),
        (["--concurrency=1"], 2, "which model?"),
        (["sleeper", "--no-such-flag"], 2, "--no-such-flag"),
    ],
)
def test_what_cannot_be_done_is_said_at_once(
    analyze: Analyze, tmp_path: Path, words: list[str], code: int, message: str
) -> None:
    (tmp_path / "bad.yaml").write_text("a: [1,\nb: }\n")
    (tmp_path / "odd.yaml").write_text("objectivs: [perf_throughput]\n")
    done = analyze(*words, *SMALL)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trireme", "analyze", "sleeper", "--url", "127.0.0.1:9"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert "no server answers" in done.stderr


def test_a_bound_that_nothing_meets_keeps_the_results(analyze: Analyze, tmp_path: Path) -> None:
    done = analyze("sleeper", *SMALL, "--slo", "p99<1us")
    assert done.returncode == 5, done.stderr
    assert "No configuration meets the constraints" in done.stdout
    assert (tmp_path / "results/metrics-model-inference.csv").is_file()


def test_a_server_without_model_control_says_what_to_do(tmp_path: Path) -> None:
    write_models(tmp_path)
    with RunningServer(tmp_path) as server:
        server.wait_until_ready()
        command = [sys.executable, "-m", "trireme", "analyze", "sleeper", *SMALL, *place_words(server)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert "--model-control-mode explicit" in done.stderr
    assert "put" not in done.stderr.partition("not allowed")[2], "nothing was changed that could be put back"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_search_keeps_its_results_and_goes_on_from_them(
    server: RunningServer, start: Start, tmp_path: Path, number: int
) -> None:
    before = config_of(server)
    words = ["sleeper", *SMALL, "--run-config-search-mode=brute"]
    process = start(*words)
    wait_for(lambda: config_of(server) != before)
    process.send_signal(number)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert config_of(server) == before
    kept = json.loads((tmp_path / "checkpoints/0.ckpt").read_text())["results"]
    assert kept
    assert (tmp_path / "results/metrics-model-inference.csv").is_file()

    process = start(*words, "--run-config-search-max-concurrency=1")
    _, told = process.communicate(timeout=100)
    assert process.returncode == 0, told
    assert f"which has {len(kept)} measurements" in told
    title = "sleeper_config_default, concurrency 1:"
    assert title not in told, "it was measured again"
    assert (tmp_path / "checkpoints/1.ckpt").is_file()


def test_what_was_measured_of_something_else_is_measured_anew(
    analyze: Analyze, server: RunningServer, tmp_path: Path
) -> None:
    words = ["sleeper", "--concurrency=1", "--run-config-search-disable"]
    repository = ("--model-repository", str(server.log_path.parent / "model_repository"))
    done = analyze(*words, *repository)
    assert done.returncode == 0, done.stderr
    again = analyze(*words, *repository)
    assert "which has 1 measurement\n" in again.stderr
    assert "sleeper_config_default, concurrency 1:" not in again.stderr
    for more, reason in (
        (("--input-data=zero", *repository), "the load of 'sleeper' has changed: it is measured anew"),
        (("--input-data=zero",), "the files of 'sleeper' have changed: it is measured anew"),
    ):
        done = analyze(*words, *more)
        assert reason in done.stderr
        assert "sleeper_config_default, concurrency 1:" in done.stderr
    done = analyze(*words, "--input-data=zero", protocol="http")
    assert "the server of 'sleeper' has changed: it is measured anew" in done.stderr


def test_what_was_measured_outside_of_what_is_asked_for_is_not_ranked(analyze: Analyze, tmp_path: Path) -> None:
    words = ["sleeper", *SMALL, "--run-config-search-mode=brute", "--run-config-search-max-concurrency=1"]
    assert analyze(*words).returncode == 0
    done = analyze(*words, "--run-config-search-max-instance-count=1", "--export-path=narrow")
    assert done.returncode == 0, done.stderr
    assert "of them are outside of what is searched now, and do not count" in done.stderr
    assert " 0 measurements;" in done.stderr, "what is inside was measured again"
    with (tmp_path / "narrow/results/metrics-model-inference.csv").open() as file:
        groups = [row["Instance Group"] for row in csv.DictReader(file)]
    assert set(groups) == {"1:CPU"}


def test_a_killed_analysis_leaves_the_model_as_it_was(server: RunningServer, start: Start) -> None:
    before = config_of(server)
    process = start("sleeper", *SMALL, "--run-config-search-mode=brute")
    wait_for(lambda: config_of(server) != before)
    process.kill()
    process.communicate()
    wait_for(lambda: config_of(server) == before)


def test_a_model_that_was_loaded_with_another_configuration_gets_that_one_back(
    server: RunningServer, analyze: Analyze
) -> None:
    config = {**config_of(server, "other"), "max_batch_size": 3}
    server.ask("POST", "/v2/repository/models/other/load", {"parameters": {"config": json.dumps(config)}})
    before = config_of(server, "other")
    assert before["max_batch_size"] == 3
    done = analyze("other", *SMALL, "--run-config-search-mode=brute", "--run-config-search-max-concurrency=1")
    assert done.returncode == 0, done.stderr
    assert config_of(server, "other") == before


def test_a_server_that_is_started_anew_meanwhile_is_waited_for(tmp_path: Path) -> None:
    write_models(tmp_path)
    flags = ("--model-control-mode=explicit", "--load-model=*")
    with RunningServer(tmp_path, *flags) as server:
        server.wait_until_ready()
        before = config_of(server)
        command = [sys.executable, "-m", "trireme", "analyze", "sleeper", *SMALL, *place_words(server)]
        command += ["--run-config-search-mode=brute", "--run-config-search-max-concurrency=2"]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for(lambda: config_of(server) != before)
        server.process.kill()
        server.process.wait()
        program = [str(Path(sys.executable).with_name("tritonserver")), "--model-repository=model_repository"]
        server._start(tmp_path, [*program, *flags, *port_flags(server.ports)])
        output, told = process.communicate(timeout=110)
        assert process.returncode == 0, told
        assert "the server went away" in told
        assert "Result Summary of sleeper:" in output
        assert config_of(server) == before


def test_a_server_that_does_not_come_back_ends_it_with_what_there_is(tmp_path: Path) -> None:
    write_models(tmp_path)
    with RunningServer(tmp_path, "--model-control-mode=explicit", "--load-model=*") as server:
        server.wait_until_ready()
        before = config_of(server)
        command = [sys.executable, "-m", "trireme", "analyze", "sleeper", *SMALL, *place_words(server)]
        command += ["--run-config-search-mode=brute", "--client-max-retries=1"]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for(lambda: config_of(server) != before)
        server.process.kill()
        output, told = process.communicate(timeout=110)
        assert process.returncode == 3, told
        assert "Result Summary of sleeper:" in output
        assert "could not be put back" in told
