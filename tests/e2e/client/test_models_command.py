"""`trireme models` against a server: the index, configurations, statistics, control, and the live view."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from running_server import RunningServer

TRIREME = str(Path(sys.executable).with_name("trireme"))
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def rows_of(table: str) -> list[list[str]]:
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_index(trireme: Run, protocol: str) -> None:
    done = trireme("models", protocol=protocol)
    names = ["adder", "scribe", "shout", "storyteller"]
    assert rows_of(done.stdout) == [[name, "1", "READY"] for name in names]
    entries = json.loads(trireme("models", "--json", protocol=protocol).stdout)
    assert [entry["name"] for entry in entries] == names


def test_config(trireme: Run, protocol: str) -> None:
    done = trireme("models", "config", "adder", protocol=protocol)
    assert ["max_batch_size", "8"] in rows_of(done.stdout)
    assert "| SUM  | FP32     | [4]  |" in done.stdout
    assert json.loads(trireme("models", "config", "adder", "--json", protocol=protocol).stdout)["name"] == "adder"


def test_statistics(trireme: Run, server: Any, protocol: str) -> None:
    before = server.statistics("adder")["inference_stats"]["success"]["count"]
    assert trireme("infer", "adder", "A=1,2,3,4", "B=1,2,3,4").returncode == 0
    ((name, version, requests, errors, *_),) = rows_of(
        trireme("models", "statistics", "adder", protocol=protocol).stdout
    )
    assert (name, version, int(requests), errors) == ("adder", "1", before + 1, "0")
    assert len(rows_of(trireme("models", "statistics", protocol=protocol).stdout)) == 4
    stats = json.loads(trireme("models", "statistics", "adder", "--json", protocol=protocol).stdout)["model_stats"]
    assert int(stats[0]["inference_count"]) == before + 1


def test_unload_load_and_reload(trireme: Run, protocol: str, tmp_path: Path) -> None:
    try:
        assert rows_of(trireme("models", "unload", "shout", protocol=protocol).stdout) == [
            ["shout", "1", "UNAVAILABLE", "unloaded"]
        ]
        refused = trireme("infer", "shout", "hi", protocol=protocol)
        assert (refused.returncode, "version 1 is UNAVAILABLE: unloaded" in refused.stderr) == (4, True)
        loaded = json.loads(trireme("models", "load", "shout", "--json", protocol=protocol).stdout)
        assert loaded == [{"name": "shout", "version": "1", "state": "READY"}]
        config = json.loads(trireme("models", "config", "shout", "--json").stdout)
        config["parameters"]["excitement"]["string_value"] = "1"
        (tmp_path / "config.json").write_text(json.dumps(config))
        done = trireme("models", "reload", "shout", "--config", f"{tmp_path}/config.json", protocol=protocol)
        assert done.returncode == 0, done.stderr
        assert trireme("infer", "shout", "hi", protocol=protocol).stdout == "HI!\n"
    finally:
        assert trireme("models", "reload", "shout").returncode == 0
    assert trireme("infer", "shout", "hi", protocol=protocol).stdout == "HI!!!\n"


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (["lod", "adder"], 2, "there is no command 'lod'; did you mean 'load'?"),
        (["top"], 2, "there is no command 'top'; there are: index, config, statistics, load, unload, reload, --live"),
        (["live"], 2, "there is no command 'live'; did you mean '--live'?"),
        (["load"], 2, "'trireme models load' needs the name of a model"),
        (["load", "addr"], 4, "has no model 'addr'; did you mean 'adder'?"),
        (["unload", "addr"], 4, "did you mean 'adder'?"),
        (["config", "addr"], 4, "did you mean 'adder'?"),
        (["statistics", "addr"], 4, "did you mean 'adder'?"),
        (["statistics", "adder", "shout"], 2, "takes one model at most"),
        (["index", "adder"], 2, "takes no model"),
        (["reload", "adder", "--config", "/none.json"], 2, "'/none.json' cannot be read"),
        (["--live", "--interval", "0"], 2, "--interval takes seconds"),
        (["--live", "addr"], 4, "did you mean 'adder'?"),
    ],
)
def test_mistakes_are_told_with_their_exit_code(
    trireme: Run, protocol: str, words: list[str], code: int, reason: str
) -> None:
    done = trireme("models", *words, protocol=protocol)
    assert reason in done.stderr
    assert done.returncode == code


def test_model_that_cannot_be_loaded_says_why(trireme: Run, server: Any) -> None:
    folder = server.log_path.parent / "model_repository/broken"
    (folder / "1").mkdir(parents=True)
    (folder / "1/model.py").write_text("raise RuntimeError('no sails')\n")
    (folder / "config.pbtxt").write_text('backend: "python"\n')
    try:
        done = trireme("models", "load", "broken")
        assert (done.returncode, "no sails" in done.stderr) == (1, True)
    finally:
        shutil.rmtree(folder)


def test_live_view_counts_requests(server: Any, protocol: str) -> None:
    words = [TRIREME, "models", "--live", "adder", "--json", "--interval", "1", "--count", "2", *server.words(protocol)]
    body = {"inputs": [{"name": name, "datatype": "FP32", "shape": [2, 4], "data": [1.0] * 8} for name in ("A", "B")]}
    sent = 0
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            assert server.ask("POST", "/v2/models/adder/infer", body)[0] == 200
            assert server.ask("POST", "/v2/models/adder/infer", {"inputs": []})[0] == 400
            sent += 1
        assert process.stdout is not None
        lines = [json.loads(line)["models"] for line in process.stdout.read().splitlines()]
    assert process.returncode == 0
    assert [model["name"] for (model,) in lines] == ["adder", "adder"]
    counted = [model["added"] for (model,) in lines]
    assert 0 < sum(one["requests"] for one in counted) <= sent
    for (model,) in lines:
        added = model["added"]
        assert model["inferences_per_s"] > model["requests_per_s"] - model["failures_per_s"] > 0
        assert added["inferences"] == 2 * added["requests"]
        assert 0 < model["queue_ms"] + model["compute_ms"] <= model["latency_ms"] * 1.01


def test_live_view_on_a_terminal(server: Any) -> None:
    pid, screen = pty.fork()
    if pid == 0:
        words = [TRIREME, "models", "--live", "--interval", "0.2", *server.words("http")]
        os.execve(TRIREME, words, {**os.environ, "TERM": "xterm", "COLUMNS": "80", "NO_COLOR": "1"})
    shown = ""
    end = time.monotonic() + 60
    try:
        while shown.count("requests/s") < 2:
            assert time.monotonic() < end, shown
            if select.select([screen], [], [], 0.2)[0]:
                shown += os.read(screen, 65536).decode()
        os.write(screen, b"\x03")
        while "\x1b[?1049l" not in shown:
            assert time.monotonic() < end, shown
            shown += os.read(screen, 65536).decode()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.close(screen)
    assert shown.startswith("\x1b[?1049h")
    lines = re.sub(r"\x1b\[\??[0-9]*[a-zA-Z]", "", shown).splitlines()
    assert max(len(line.rstrip("\r")) for line in lines) <= 80
    assert any("storyteller" in line for line in lines)


def test_key_is_sent(tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parents[3] / "examples/model_repository/shout", tmp_path / "model_repository/shout")
    made = subprocess.run(
        [TRIREME, "keys", "new", "keys.toml", "shell"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    key = made.stdout.strip()
    with RunningServer(tmp_path, "--api-keys=keys.toml") as running:
        running.wait_until_listening()
        for protocol in ("http", "grpc"):
            flags = ["--url", f"127.0.0.1:{running.ports[protocol]}", *(["--grpc"] if protocol == "grpc" else [])]
            words = [TRIREME, "infer", "shout", "hi", *flags]
            plain = {name: value for name, value in os.environ.items() if name != "TRIREME_API_KEY"}
            refused = subprocess.run(words, capture_output=True, text=True, check=False, env=plain)
            assert (refused.returncode, "key" in refused.stderr) == (1, True)
            assert (
                subprocess.run([*words, "--key", key], capture_output=True, text=True, check=False).stdout == "HI!!!\n"
            )
            with_variable = {**plain, "TRIREME_API_KEY": key}
            done = subprocess.run(words, capture_output=True, text=True, check=False, env=with_variable)
            assert done.stdout == "HI!!!\n"
