"""What measurements rest on: whether those of an earlier analysis are of the same thing."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from trireme.tools.analyze.measuring.basis import Basis, basis_of
from trireme.tools.analyze.options import AnalyzeOptions, ModelOptions, ServerPlace


@pytest.fixture
def options(tmp_path: Path) -> AnalyzeOptions:
    version = tmp_path / "repository" / "m" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text("one")
    (tmp_path / "data.json").write_text("{}")
    place = ServerPlace("remote", grpc_url="far:8001", headers=(("Authorization", "Bearer one"),))
    flags = ("--input-data", str(tmp_path / "data.json"))
    return AnalyzeOptions((ModelOptions("m", perf_flags=flags),), str(tmp_path / "repository"), place)


def changed(before: Basis, now: Basis) -> list[str]:
    return [name for name in now if before[name] != now[name]]


def test_a_key_and_what_python_writes_are_no_change(options: AnalyzeOptions) -> None:
    before = basis_of(options, "m")
    written = Path(options.repository or "", "m", "1", "__pycache__")
    written.mkdir()
    (written / "model.pyc").touch()
    other_key = replace(options.place, headers=(("Authorization", "Bearer two"),))
    assert basis_of(replace(options, place=other_key), "m") == before


def test_another_address_protocol_or_program_is_another_server(options: AnalyzeOptions) -> None:
    before = basis_of(options, "m")
    for place in (
        replace(options.place, grpc_url="near:8001"),
        replace(options.place, protocol="http"),
        ServerPlace("local", program="other"),
        ServerPlace("local", flags={"a": "b"}),
    ):
        assert changed(before, basis_of(replace(options, place=place), "m")) == ["server"]


def test_other_words_and_other_data_are_another_load(options: AnalyzeOptions, tmp_path: Path) -> None:
    before = basis_of(options, "m")
    more = ModelOptions("m", perf_flags=(*options.models[0].perf_flags, "--shape", "IN:4", "x" * 5000))
    assert changed(before, basis_of(replace(options, models=(more,)), "m")) == ["load"]
    (tmp_path / "data.json").write_text("[]", encoding="utf-8")
    os.utime(tmp_path / "data.json", ns=(1, 1))
    assert changed(before, basis_of(options, "m")) == ["load"]


def test_files_of_another_content_or_version_are_others(options: AnalyzeOptions) -> None:
    before = basis_of(options, "m")
    model = Path(options.repository or "", "m")
    (model / "config.pbtxt").write_text("the server says what is in it")
    assert basis_of(options, "m") == before
    os.utime(model / "1" / "model.py", ns=(1, 1))
    assert changed(before, basis_of(options, "m")) == ["files"]
    now = basis_of(options, "m")
    (model / "2").mkdir()
    (model / "2" / "model.py").touch()
    assert changed(now, basis_of(options, "m")) == ["files"]
