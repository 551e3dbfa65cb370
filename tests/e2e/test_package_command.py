"""`trireme package`: a zip file that unpacks into the same repository and loads."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from running_server import write_model

MODEL = """
class TritonPythonModel:
    def initialize(self, args):
        open(args["model_repository"] + "/1/weights.txt").read()
    def execute(self, requests):
        return []
"""

HANGING_MODEL = """
import os, time
class TritonPythonModel:
    def initialize(self, args):
        with open("{marker}.unfinished", "w") as file:
            file.write(str(os.getppid()))
        os.rename("{marker}.unfinished", "{marker}")
        time.sleep(600)
    def execute(self, requests):
        return []
"""


def package(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("trireme")), "package", "model_repository", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def write_repository(folder: Path) -> Path:
    version = write_model(folder, "inner", MODEL) / "1"
    (folder / "weights.txt").write_text("weights")
    (version / "weights.txt").symlink_to(folder / "weights.txt")
    (version / "__pycache__").mkdir()
    outer = folder / "model_repository" / "outer"
    (outer / "1").mkdir(parents=True)
    (outer / "config.pbtxt").write_text(
        'platform: "ensemble" max_batch_size: 8 '
        'input [{ name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }] '
        'output [{ name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] }] '
        'ensemble_scheduling { step [{ model_name: "inner" model_version: -1 '
        'input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } }] }'
    )
    return version


def test_a_package_holds_empty_folders_and_what_links_lead_to(tmp_path: Path) -> None:
    write_repository(tmp_path)
    ended = package(tmp_path, "-o", "model_artifact.zip")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("Wrote model_artifact.zip: 4 files")  # and nothing of the server that checks it
    assert ended.stdout.count("\n") == 1
    with zipfile.ZipFile(tmp_path / "model_artifact.zip") as archive:
        assert set(archive.namelist()) == {
            "model_repository/",
            "model_repository/inner/",
            "model_repository/inner/config.pbtxt",
            "model_repository/inner/1/",
            "model_repository/inner/1/model.py",
            "model_repository/inner/1/weights.txt",
            "model_repository/outer/",
            "model_repository/outer/config.pbtxt",
            "model_repository/outer/1/",
        }
        assert archive.read("model_repository/inner/1/weights.txt") == b"weights"
    assert "is there already" in package(tmp_path, "-o", "model_artifact.zip").stderr
    mistaken = subprocess.run(
        [str(Path(sys.executable).with_name("trireme")), "package", "model_repository/inner", "-o", "inner.zip"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (mistaken.returncode, (tmp_path / "inner.zip").exists()) == (1, False)
    assert mistaken.stderr == (
        "trireme package: 'model_repository/inner' is a model, and not the folder around it. All models of that are "
        "packed by\n  trireme package model_repository\nand one alone from a folder that has no other\n"
    )
    missing = package(tmp_path, "-o", "nowhere/model_artifact.zip")
    assert (missing.returncode, "there is no folder nowhere for model_artifact.zip" in missing.stderr) == (1, True)


def test_a_package_that_does_not_load_is_not_left_behind(tmp_path: Path) -> None:
    version = write_repository(tmp_path)
    (version / "weights.txt").unlink()
    ended = package(tmp_path, "-o", "model_artifact.zip")
    assert ended.returncode == 1
    assert "inner does not load from the package" in ended.stderr
    assert "weights.txt" in ended.stderr
    assert not (tmp_path / "model_artifact.zip").exists()
    assert package(tmp_path, "-o", "model_artifact.zip", "--no-check").returncode == 0


def test_a_link_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    write_repository(tmp_path)
    (tmp_path / "weights.txt").unlink()
    ended = package(tmp_path)
    assert ended.returncode == 1
    assert "weights.txt is a link to" in ended.stderr


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file_is_named_and_not_read(tmp_path: Path, kind: str) -> None:
    odd = write_repository(tmp_path) / "odd"
    os.mkfifo(odd) if kind == "pipe" else odd.symlink_to("/dev/null")
    ended = package(tmp_path, "--no-check")
    assert ended.returncode == 1
    assert "inner/1/odd is neither a file nor a folder, nor a link to one; remove it" in ended.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"model_repository", "weights.txt"}


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    folder = os.open(write_repository(tmp_path), os.O_RDONLY)
    for _ in range(20):  # until the path is longer than any that can be opened
        os.mkdir("d" * 250, dir_fd=folder)
        inner = os.open("d" * 250, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    ended = package(tmp_path, "--no-check")
    assert ended.returncode == 1
    assert re.fullmatch(r"trireme package: \S+/inner/1(/d{250})+: File name too long\n", ended.stderr), ended.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"model_repository", "weights.txt"}


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_name_that_a_zip_file_cannot_hold_is_told(tmp_path: Path, is_folder: bool) -> None:
    odd = write_repository(tmp_path) / os.fsdecode(b"caf\xe9")
    odd.mkdir() if is_folder else odd.write_text("")
    ended = package(tmp_path, "--no-check")
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert r"inner/1/caf\xe9 is not UTF-8, which a zip file needs; rename it" in ended.stderr


def test_the_check_needs_no_room_elsewhere(tmp_path: Path) -> None:
    write_repository(tmp_path)
    script = (
        "import sys, tempfile; from trireme.cli.package import main; tempfile.tempdir = '/proc'; main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", script, "model_repository"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ended.stdout.startswith("Wrote model_artifact.zip: 4 files"), ended.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"model_repository", "weights.txt", "model_artifact.zip"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("is_server", [False, True])
def test_a_check_that_is_ended_leaves_nothing(tmp_path: Path, number: signal.Signals, is_server: bool) -> None:
    """The command, or the server that loads the models, which is the parent of their processes."""
    marker, unpacked = tmp_path / "loading", tmp_path / "unpacked"
    write_model(tmp_path, "hanging", HANGING_MODEL.format(marker=marker))
    unpacked.mkdir()
    command = [str(Path(sys.executable).with_name("trireme")), "package", "model_repository"]
    variables = {**os.environ, "TMPDIR": str(unpacked)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, env=variables, stdout=pipe, stderr=pipe, text=True) as running:
        try:
            until_s = time.monotonic() + 120
            while not marker.exists():
                assert running.poll() is None, running.communicate()
                assert time.monotonic() < until_s
                time.sleep(0.02)
            assert not (tmp_path / "model_artifact.zip").exists()
            os.kill(int(marker.read_text()) if is_server else running.pid, number)
            out, err = running.communicate(timeout=120)
        finally:
            running.kill()
    assert running.returncode == (1 if is_server else 128 + number), (out, err)
    assert "Wrote" not in out
    assert ("the check was ended before all models were loaded" in err) == is_server
    assert {path.name for path in tmp_path.iterdir()} == {"model_repository", "unpacked", "loading"}
    assert not list(unpacked.iterdir())
