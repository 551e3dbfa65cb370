"""Commands that tests start are forked, and look like those that are started from scratch."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import forked_commands
import pytest
from command_starter import PRELOADED, lease_to_all
from forked_commands import Starter
from needed_frameworks import wants_frameworks
from preloaded_frameworks import PutAside
from running_server import RunningServer, write_model
from waiting import until

from trireme.app.leases import lease_issuer, model_leases
from trireme.tools.child_server import ChildServer

TRIREME = str(Path(sys.executable).with_name("trireme"))
SURROUNDINGS = """
import json, os, sys
import numpy as np
import triton_python_backend_utils as pb_utils
FIRST = sorted(name for name in sys.modules if name.partition(".")[0] in ("torch", "trireme") and "." in name)

class TritonPythonModel:
    def initialize(self, args):
        with open("seen", "w") as file:
            json.dump({"variable": os.environ.get("TEST_WISH"), "modules": FIRST, "parent": os.getppid()}, file)
    def execute(self, requests):
        return [pb_utils.InferenceResponse([]) for _ in requests]
"""

IDLE = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"


def is_forked(process: subprocess.Popen[bytes]) -> bool:
    return getattr(process, "_teller", None) is not None


def run_both(*words: str, **settings: object) -> tuple[object, object]:
    """What is to be seen of a command that is forked, and of one from scratch."""
    seen = []
    for popen in (forked_commands.CommandPopen, forked_commands.FromScratch):
        with popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **settings) as process:
            output = process.communicate(timeout=60)
        assert is_forked(process) == (popen is forked_commands.CommandPopen)
        seen.append((process.returncode, *output))
    return seen[0], seen[1]


@pytest.mark.parametrize("words", [("version",), ("help",), ("no-such-command",), ("config", "check", ".")])
def test_output_and_exit_code_are_the_same(words: tuple[str, ...], tmp_path: Path) -> None:
    write_model(tmp_path, "broken", "", config="backend: 7\n")
    forked, fresh = run_both(TRIREME, *words, cwd=tmp_path / "model_repository")
    assert forked == fresh


def test_module_runs_like_the_script(tmp_path: Path) -> None:
    forked, fresh = run_both(sys.executable, "-m", "trireme", "models", "index", "--url", "127.0.0.1:9", cwd=tmp_path)
    assert forked == fresh


def test_a_program_of_the_examples_runs_as_python_runs_it(tmp_path: Path) -> None:
    program = tmp_path / "programs" / "make_model.py"
    program.parent.mkdir()
    program.write_text(
        "import sys, helper\n"
        "print(__name__, __file__, sys.argv, sys.path[0], 'torch' in sys.modules)\n"
        "print(sys.modules['__main__'].helper.__file__)\n"
        "sys.exit(int(sys.argv[1]))\n"
    )
    (program.parent / "helper.py").write_text("")
    for code, name in (("0", str(program)), ("3", "programs/make_model.py")):
        forked, fresh = run_both(sys.executable, name, code, cwd=tmp_path)
        assert forked == fresh
    program.write_text("raise SystemExit('no model')")
    forked, fresh = run_both(sys.executable, str(program), cwd=tmp_path)
    assert forked == fresh == (1, b"", b"no model\n")


def test_what_builds_tiny_models_is_forked_and_builds_the_same(tmp_path: Path) -> None:
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
    words = (sys.executable, str(Path(forked_commands.__file__).with_name("tiny_models.py")), "tokenizer")
    with forked_commands.CommandPopen([*words, str(tmp_path / "one")]) as process:
        assert process.wait(100) == 0
    assert is_forked(process)
    with forked_commands.FromScratch([*words, str(tmp_path / "two")]) as process:
        assert process.wait(100) == 0
    one, two = ({file.name: file.read_bytes() for file in (tmp_path / place).iterdir()} for place in ("one", "two"))
    assert one == two
    assert "tokenizer.json" in one


def test_variables_and_input_reach_the_command(tmp_path: Path) -> None:
    variables = {**os.environ, "COLUMNS": "40"}
    forked, fresh = run_both(TRIREME, "perf", "--help", cwd=tmp_path, env=variables, stdin=subprocess.DEVNULL)
    assert forked == fresh


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningServer]:
    monkeypatch.setenv("TEST_WISH", "granted")
    write_model(tmp_path, "looking", SURROUNDINGS)
    with RunningServer(tmp_path) as running:
        assert is_forked(running.process)
        running.wait_until_ready()
        yield running


def test_server_and_worker_have_their_own_surroundings(server: RunningServer, tmp_path: Path) -> None:
    seen = json.loads((tmp_path / "seen").read_text())
    assert seen["variable"] == "granted"
    assert seen["parent"] == server.process.pid
    assert not [name for name in seen["modules"] if name.startswith(("torch", "trireme.server", "trireme.app"))]
    assert Path(f"/proc/{server.process.pid}/comm").read_text() == "tritonserver\n"
    assert "libtorch" not in Path(f"/proc/{server.process.pid}/maps").read_text() or "TEST_PROCESS" in os.environ


def test_an_interrupted_server_ends_in_order(server: RunningServer) -> None:
    assert server.interrupt() == 0
    assert "Signal (2) received." in server.log


def test_a_killed_process_is_there_until_it_is_waited_for(server: RunningServer) -> None:
    status = Path(f"/proc/{server.process.pid}/stat")
    server.process.kill()
    until(lambda: status.read_text().rpartition(")")[2].split()[0] == "Z")
    assert server.process.wait(20) == -signal.SIGKILL
    until(lambda: not status.exists())


def test_the_server_of_a_tool_is_forked(tmp_path: Path) -> None:
    write_model(tmp_path, "idle", IDLE)
    with ChildServer("trireme-test-") as server:
        server.start(tmp_path / "model_repository", (), has_own_session=True)
        assert server._process is not None
        assert is_forked(server._process)
        server.wait(60)
        assert os.getsid(server._process.pid) == server._process.pid


def test_a_forked_command_has_its_server_forked(tmp_path: Path) -> None:
    write_model(tmp_path, "idle", IDLE)
    words = ("model-analyzer", "profile", "--model-repository", "model_repository", "--profile-models", "idle")
    command = [str(Path(TRIREME).with_name(words[0])), *words[1:]]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as analyzer:
        assert is_forked(analyzer)
        until(lambda: len(forked_in(tmp_path)) == 2, 60)
        analyzer.terminate()
    until(lambda: not forked_in(tmp_path), 60)


def forked_in(folder: Path) -> list[int]:
    """The starters' own children that work in this folder."""
    starters = [one._process.pid for one in forked_commands._starters.values() if isinstance(one, Starter)]
    children = [Path(f"/proc/{pid}/task/{pid}/children").read_text().split() for pid in starters]
    return [int(child) for each in children for child in each if _cwd(child) == folder]


def _cwd(child: str) -> Path | None:
    try:
        return Path(f"/proc/{child}/cwd").readlink()
    except OSError:  # gone meanwhile
        return None


@pytest.mark.parametrize(
    "settings",
    [
        {"preexec_fn": lambda: None},
        {"env": {**os.environ, "PYTHONWARNINGS": "error"}},
        {"pass_fds": (0,)},
        {"umask": 0o77},
    ],
)
def test_what_only_a_fresh_process_can_have_gets_one(settings: dict[str, object]) -> None:
    with subprocess.Popen([TRIREME, "version"], stdout=subprocess.DEVNULL, **settings) as process:  # type: ignore[call-overload]
        assert process.wait(60) == 0
    assert not is_forked(process)


def test_tests_of_the_start_get_fresh_processes(fresh_interpreters: None) -> None:
    with subprocess.Popen([TRIREME, "version"], stdout=subprocess.DEVNULL) as process:
        assert process.wait(60) == 0
    assert not is_forked(process)


def test_the_tests_beside_a_model_are_forked_and_other_tests_are_not(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.pbtxt").touch()
    (tmp_path / "test_nothing.py").write_text("def test_nothing():\n    pass\n")
    for named, is_wanted in (("model", True), ("test_nothing.py", False)):
        words = [sys.executable, "-m", "pytest", "--version", named]
        with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            assert process.wait(60) == 0
        assert is_forked(process) is is_wanted


def test_the_tests_behind_those_get_forked_ones_again() -> None:
    with subprocess.Popen([TRIREME, "version"], stdout=subprocess.DEVNULL) as process:
        assert process.wait(60) == 0
    assert is_forked(process)


def test_a_folder_that_is_not_there_is_refused_as_ever(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        subprocess.Popen([TRIREME, "version"], cwd=tmp_path / "nowhere")


def test_everything_that_is_preloaded_exists() -> None:
    assert [name for name in PRELOADED if importlib.util.find_spec(name) is None] == []


@pytest.mark.parametrize(
    ("words", "code", "is_wanted"),
    [
        (["tritonserver", "--model-repository=model_repository"], "import torch", True),
        (["tritonserver", "--model-repository=model_repository"], "import numpy", False),
        (["tritonserver", "--model-repository", "model_repository"], "from transformers import pipeline", True),
        (["trireme", "serve", "model_repository"], "from trireme.backends.gaudi import causal_lm", True),
        (["trireme", "serve", "elsewhere", "--id=" + 300 * "x"], "import torch", False),
        (["trireme", "deploy", "me/tiny"], "", True),
        (["trireme", "chat", "model_repository"], "", True),
        (["trireme", "chat", "model", "--url", "http://localhost:8000"], "", False),
        (["trireme", "version"], "import torch", False),
        (["python", "model_repository/model/1/model.py"], "import torch", True),
        (["python", "model_repository/model/1/model.py"], "import numpy", False),
        (["trireme", "serve", "model_repository"], "import pandas", True),
    ],
)
def test_frameworks_are_for_commands_whose_models_name_them(
    tmp_path: Path, words: list[str], code: str, is_wanted: bool
) -> None:
    write_model(tmp_path, "model", code)
    assert wants_frameworks(words, tmp_path) is is_wanted


@pytest.mark.parametrize("name", ["model.pkl", "model.ubj"])
def test_frameworks_are_for_commands_with_files_of_classic_models(tmp_path: Path, name: str) -> None:
    file = tmp_path / "repository" / "model" / "1" / name
    file.parent.mkdir(parents=True)
    file.write_bytes(b"")
    assert wants_frameworks(["trireme", "serve", "repository"], tmp_path)
    file.rename(file.with_name("notes.md"))
    assert not wants_frameworks(["trireme", "serve", "repository"], tmp_path)


def test_a_flag_alone_does_not_name_the_folder_that_the_command_runs_in(tmp_path: Path) -> None:
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    (tmp_path / "tests" / "unit" / "test_models.py").write_text("import torch")
    assert not wants_frameworks(["trireme", "infer", "adder", "--json", "--url", "localhost:8000"], tmp_path)


def test_a_module_that_was_put_aside_is_found_by_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "put_aside_for_a_test.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("put_aside_for_a_test")
    specification = module.__spec__
    del sys.modules["put_aside_for_a_test"]
    monkeypatch.setattr(sys, "meta_path", [PutAside({"put_aside_for_a_test": module}), *sys.meta_path])
    assert importlib.import_module("put_aside_for_a_test") is module
    assert module.__spec__ is specification
    del sys.modules["put_aside_for_a_test"]
    assert importlib.import_module("put_aside_for_a_test") is not module  # it was taken


def test_another_module_of_the_same_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "put_aside_elsewhere.py").write_text("is_real = True")
    monkeypatch.syspath_prepend(str(tmp_path))
    aside = ModuleType("put_aside_elsewhere")
    aside.__spec__ = importlib.util.spec_from_file_location("put_aside_elsewhere", "/elsewhere/put_aside_elsewhere.py")
    monkeypatch.setattr(sys, "meta_path", [PutAside({"put_aside_elsewhere": aside}), *sys.meta_path])
    assert importlib.import_module("put_aside_elsewhere").is_real


LEASE_CONSTANTS = {
    lease_issuer: ("LOOK_S",),
    model_leases: ("_LEAST_REQUESTS", "_LEAST_OF_PROCESS", "_WORTH_A_MOVE", "_MOST_EXECUTION_NS", "_QUIET_LOOKS"),
}


@pytest.mark.parametrize("missing", [name for names in LEASE_CONSTANTS.values() for name in names])
def test_leases_of_every_model_fail_without_a_constant_that_they_change(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, names in LEASE_CONSTANTS.items():
        for name in names:
            monkeypatch.setattr(module, name, getattr(module, name))  # put back behind the test
    lease_to_all()
    module = next(module for module, names in LEASE_CONSTANTS.items() if missing in names)
    monkeypatch.delattr(module, missing)
    with pytest.raises(AttributeError, match=missing):
        lease_to_all()
