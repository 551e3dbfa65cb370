"""`--apply` and a server of the command's own: what is written, and what is taken back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from analyzed_models import CONFIG, SLEEP, SLOW, STEADY, place_words
from running_server import RunningServer, write_model

HIDING = SLOW.replace(
    "class TritonPythonModel:",
    """class TritonPythonModel:
    def initialize(self, args):
        written = open(args["model_repository"] + "/config.pbtxt").read()
        self.pause_s = 0.4 if "instance_group" in written else 0.0
""",
).replace("time.sleep(0.08)", "time.sleep(0.08 + self.pause_s)")
"""Slow as soon as its file has been changed, however it was when it was measured."""


FULL = "--run-config-search-max-concurrency=32"
"""Where some clients always wait, every batch is full, and what a configuration is worth does not hang on the moments
at which its instances began."""


def run_analyze(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trireme", "analyze", *words, *STEADY, FULL]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.parametrize("is_remote", [False, True])
def test_the_best_configuration_is_written_and_holds(tmp_path: Path, is_remote: bool) -> None:
    folder = write_model(tmp_path, "sleeper", SLOW, CONFIG)
    words = ["sleeper", "--apply", "-m", "model_repository"]
    if not is_remote:
        done = run_analyze(tmp_path, *words)
    else:
        with RunningServer(tmp_path, "--model-control-mode=explicit", "--load-model=*") as server:
            server.wait_until_ready()
            done = run_analyze(tmp_path, *words, *place_words(server))
            assert done.returncode == 0, done.stderr
            assert server.ask("GET", "/v2/models/sleeper/config")[2].count(b'"count":2') == 1
    assert done.returncode == 0, done.stderr
    assert "measured again, it holds" in done.stderr
    text = (folder / "config.pbtxt").read_text()
    assert text.startswith('# a comment that stays\nbackend: "python"\n')
    assert "count: 2" in text
    assert "dynamic_batching" in text
    assert text.count("max_batch_size") == 1


def test_what_does_not_hold_is_taken_back(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "sleeper", HIDING, CONFIG)
    done = run_analyze(tmp_path, "sleeper", "--apply", "-m", "model_repository", "-q")
    assert done.returncode == 6, done.stdout + done.stderr
    assert "did not hold" in done.stderr, "results are told where they alone are wanted"
    assert (folder / "config.pbtxt").read_text() == CONFIG


def test_a_server_that_cannot_start_is_shown_by_its_log(tmp_path: Path) -> None:
    write_model(tmp_path, "sleeper", SLEEP, CONFIG)
    (tmp_path / "f.json").write_text('{"triton_server_flags": {"no-such-flag": "1"}}')
    done = run_analyze(tmp_path, "sleeper", "-m", "model_repository", "-f", "f.json")
    assert done.returncode == 3
    assert "no-such-flag" in done.stderr
