"""What `make serve` installs before it serves: a compiled build of these sources, or else the sources."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

RECORDING_PIP = "import json, sys; json.dump(sys.argv[1:], open(sys.argv[1], 'w'))"


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, with an environment of its own and a pip that writes down what it was asked for."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.delenv("TRIREME_COMPILE", raising=False)
    spec = importlib.util.spec_from_file_location("background_build", ROOT / "background_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "_PIP", [sys.executable, "-c", RECORDING_PIP, str(tmp_path / "pip.json")])
    module.started = []
    monkeypatch.setattr(module, "start", module.started.append)
    return module


def asked_of_pip(build: Any) -> list[str]:
    words = json.loads((build.ENVIRONMENT / "pip.json").read_text())
    return [str(word) for word in words[1:]]


def test_first_start_begins_a_build_and_installs_nothing(build: Any) -> None:
    build.prepare()
    assert build.started == [build.fingerprint()]
    assert not (build.ENVIRONMENT / "pip.json").exists()


def test_finished_build_of_these_sources_is_installed_once(build: Any) -> None:
    wheel = build.FOLDER / build.fingerprint() / "trireme.whl"
    wheel.parent.mkdir(parents=True)
    wheel.touch()
    build.prepare()
    assert asked_of_pip(build)[-1] == str(wheel)
    (build.ENVIRONMENT / "pip.json").unlink()
    build.prepare()
    assert not (build.ENVIRONMENT / "pip.json").exists()
    assert build.started == []


def test_changed_sources_replace_a_compiled_build_that_is_older(build: Any) -> None:
    build.INSTALLED.write_text("of other sources")
    build.prepare()
    assert "--editable" in asked_of_pip(build)
    assert not build.INSTALLED.exists()
    assert build.started == [build.fingerprint()]


def test_copy_of_the_sources_makes_way_for_the_sources(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (build.ENVIRONMENT / "trireme").mkdir()
    (build.ENVIRONMENT / "trireme/__init__.py").touch()
    monkeypatch.syspath_prepend(build.ENVIRONMENT)
    monkeypatch.delitem(sys.modules, "trireme")
    build.prepare()
    assert "--editable" in asked_of_pip(build)


def copy_into(environment: Path) -> Path:
    """As `pip install .` leaves the package in a virtual environment, which may well lie in the clone."""
    package = environment / "site-packages/trireme"
    shutil.copytree(ROOT / "src", package.parent, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "core/tensor.cpython-311-x86_64-linux-gnu.so").touch()
    return package


def test_copy_that_pip_compiled_of_these_sources_is_kept(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    package = copy_into(build.ENVIRONMENT)
    monkeypatch.setattr(build, "_package", lambda: package)
    build.prepare()
    assert (build.started, build.INSTALLED.read_text()) == ([], build.fingerprint())
    assert not (build.ENVIRONMENT / "pip.json").exists()
    build.INSTALLED.unlink()
    (package / "core/tensor.py").write_text("# of other sources")
    build.prepare()
    assert "--editable" in asked_of_pip(build)
    assert build.started == [build.fingerprint()]


@pytest.mark.parametrize("changed", ["trireme/console/static/app.js", "triton_python_backend_utils/__init__.py"])
def test_copy_that_pip_compiled_of_other_files_is_not_kept(
    changed: str, build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = copy_into(build.ENVIRONMENT)
    (package.parent / changed).write_text("of other sources")
    monkeypatch.setattr(build, "_package", lambda: package)
    assert not build.has_build()


def test_copy_in_an_environment_inside_the_clone_is_not_taken_for_the_sources(
    build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_package", lambda: ROOT / ".venv/lib/python3.11/site-packages/trireme")
    assert not build._serves_sources()
    monkeypatch.setattr(build, "_package", lambda: ROOT / "src/trireme")
    assert build._serves_sources()


def test_remains_of_builds_that_were_killed_are_removed(build: Any) -> None:
    for name in ("killed.tmp", "killed.part", "finished", "running.tmp"):
        (build.FOLDER / name).mkdir(parents=True)
    command = [sys.executable, "-c", "print(flush=True); input()", "build"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # until then it may have no command line yet
        build._RUNNING.write_text(f"{process.pid} running")
        build.remove_remains()
        assert sorted(path.name for path in build.FOLDER.iterdir()) == ["finished", "running.tmp"]
        process.kill()
    build.remove_remains()
    assert [path.name for path in build.FOLDER.iterdir()] == ["finished"]


def test_build_keeps_its_files_in_the_environment_and_leaves_none(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told = build.ENVIRONMENT / "folder-for-files"
    part = build.FOLDER / "wanted.part"
    code = f"import os, pathlib, tempfile; pathlib.Path({str(told)!r}).write_text(tempfile.mkdtemp())"
    monkeypatch.setattr(build, "_PIP", [sys.executable, "-c", f"{code}; os.mkdir({str(part)!r})"])
    monkeypatch.setattr(os, "nice", lambda step: 0)
    build.build("wanted", 0)
    assert Path(told.read_text()).is_relative_to(build.FOLDER / "wanted.tmp")
    assert [path.name for path in build.FOLDER.iterdir()] == ["wanted"]


def test_build_whose_clone_was_removed_ends_in_silence(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    code = f"import shutil, sys; shutil.rmtree({str(build.FOLDER)!r}); sys.exit(1)"
    monkeypatch.setattr(build, "_PIP", [sys.executable, "-c", code])
    monkeypatch.setattr(os, "nice", lambda step: 0)
    build.build("wanted", os.getpid())
    assert not build.FOLDER.exists()


def test_build_for_tests_alone_is_not_served(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    build.main(["mark"])
    build.main(["unmark"])
    build.UNOPTIMIZED.touch()
    monkeypatch.setattr(build, "_serves_sources", lambda: False)
    build.prepare()
    assert "--editable" in asked_of_pip(build)
    assert build.started == [build.fingerprint()]
    assert not build.UNOPTIMIZED.exists()


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
def test_only_the_tests_of_a_fresh_environment_are_compiled_without_optimization(tmp_path: Path) -> None:
    def would_run(target: str) -> str:
        variables = {
            name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "UNOPTIMIZED"))
        }
        words = ["make", "--dry-run", f"VENV={tmp_path}", target]
        return subprocess.run(words, cwd=ROOT, env=variables, capture_output=True, text=True, check=True).stdout

    assert "--wheel-dir wheel-unoptimized" in would_run("test").replace(f"{tmp_path}/", "")
    assert "unoptimized-installed" in would_run("install")  # which is forgotten then
    assert "wheel-unoptimized" not in would_run("install")
    assert "background_build.py unmark" in would_run("test")
    assert "background_build.py mark" in would_run("install")
    (tmp_path / ".test-installed").touch()
    assert "wheel-unoptimized" not in would_run("test")


def test_build_that_runs_or_failed_is_not_begun_again(build: Any) -> None:
    wanted = build.fingerprint()
    build._RUNNING.write_text(f"{os.getpid()} of-other-sources")
    assert not build.is_running(wanted)
    build._RUNNING.write_text(f"0 {wanted}")
    assert not build.is_running(wanted)
    (build.FOLDER / wanted).mkdir(parents=True)
    (build.FOLDER / wanted / "failed").touch()
    assert build.is_running(wanted)


def test_compiling_can_be_declined(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIREME_COMPILE", "0")
    build.prepare()
    assert build.started == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("compiling 73 modules: translating them to C", ("", 0)),
        ("  compiling 50/100 trireme.core.tensor", ("50 of 100", 2)),
        ("Successfully built", ("", 0)),
    ],
)
def test_progress_is_read_from_the_build(build: Any, line: str, expected: tuple[str, int]) -> None:
    assert build._progress(line) == expected


def test_build_that_outlives_the_server_is_announced(build: Any, capsys: pytest.CaptureFixture[str]) -> None:
    build.remind()
    assert capsys.readouterr().out == ""
    command = [sys.executable, "-c", "input(print(flush=True) or '')", "build"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        build._RUNNING.write_text(f"{process.pid} of-some-sources")
        build.remind()
        told = capsys.readouterr().out
        assert "Compiling goes on in the background for the next start" in told
        assert f"'kill -- -{process.pid}' ends it" in told
        process.communicate(b"\n")
    build.remind()
    assert capsys.readouterr().out == ""


def test_make_alone_installs_nothing_and_lists_what_can_be_made() -> None:
    told = subprocess.run(["make", "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "pip" not in told
    told = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "make serve " in told
    assert "make test " in told
