"""The installed commands and the Makefile, as a user calls them; no server is started here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
pytestmark = pytest.mark.usefixtures("fresh_interpreters")


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, capture_output=True, text=True, timeout=60, cwd=ROOT, env={**os.environ, **environment}, check=False
    )


def test_tritonserver_help_exits_1_with_the_usage_on_stderr() -> None:
    done = run(str(BIN / "tritonserver"), "--help")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Usage: tritonserver [options]\n")


def test_unknown_flag_exits_1_with_usage_and_reason() -> None:
    done = run(str(BIN / "tritonserver"), "--model-repository=x", "--http-prot=1")
    assert done.returncode == 1
    assert done.stderr.startswith("Usage: tritonserver [options]\n")
    assert done.stderr.endswith("unrecognized option '--http-prot'. Did you mean '--http-port'?\n")


def test_without_a_repository_the_server_exits_1() -> None:
    done = run(str(BIN / "tritonserver"))
    assert done.returncode == 1
    assert "--model-repository must be specified" in done.stderr


def test_trireme_version_and_help_exit_0() -> None:
    assert run(str(BIN / "trireme"), "version").returncode == 0
    assert "serve" in run(str(BIN / "trireme"), "help").stdout


def test_config_check_finds_nothing_wrong_with_the_examples() -> None:
    done = run(str(BIN / "trireme"), "config", "check", "examples/model_repository")
    assert done.stderr == ""
    scribe = "scribe: ok; inputs and outputs are left to its backend, which finds them when it loads"
    assert done.stdout.splitlines() == ["adder: ok", scribe, "shout: ok", "storyteller: ok"]
    assert done.returncode == 0


@pytest.mark.parametrize("target", ["install", "serve", "test", "lint", "bench", "format", "reference"])
def test_make_knows_the_target(target: str) -> None:
    done = run("make", "--dry-run", target)
    assert done.returncode == 0, done.stderr


def test_make_serve_needs_no_test_packages() -> None:
    printed = run("make", "--dry-run", "VENV=.venv-that-is-not-there", "serve").stdout
    assert "TRIREME_COMPILE=0" in printed
    assert "install --quiet --no-compile -e ." in printed
    assert "[test]" not in printed
    assert ".venv-that-is-not-there/bin/trireme serve examples/model_repository" in printed


def test_ci_runs_make_test() -> None:
    script = ROOT / ".ci/run"
    assert os.access(script, os.X_OK)
    assert script.read_text(encoding="utf-8").rstrip().endswith('\nexec make test PYTHON="$python"')
    assert run("bash", "-n", str(script)).returncode == 0
