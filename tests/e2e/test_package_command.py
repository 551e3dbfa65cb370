"""`trireme package`: a zip file that unpacks into the same repository and loads."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from running_server import write_model

MODEL = """
class TritonPythonModel:
    def initialize(self, args):
        open(args["model_repository"] + "/1/weights.txt").read()
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
    assert "Wrote model_artifact.zip: 4 files" in ended.stdout
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
