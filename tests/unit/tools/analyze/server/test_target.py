"""A server that is started for a while: for this machine alone, and gone with its log however the start ends."""

from __future__ import annotations

import stat
import tempfile
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import ANY

import pytest

from trireme.tools.analyze.measuring.llm_point import llm_options
from trireme.tools.analyze.measuring.load_point import perf_options
from trireme.tools.analyze.options import ServerPlace
from trireme.tools.analyze.server.target import Target, open_target
from trireme.tools.analyze.trial import Load
from trireme.tools.child_server import ChildServer
from trireme.tools.client.connect import ConnectionOptions, place_of
from trireme.tools.client.errors import InputError, UnreachableError
from trireme.tools.perf.control.connect import server_address
from trireme.tools.perf.llm.requests import load_options

PROGRAM = """#!/bin/sh
echo "$@" > {folder}/words
echo $$ > {folder}/id
{rest}
"""


class Remote:
    """The same for a server that runs."""

    def __init__(self, url: str, protocol: str = "http") -> None:
        key = (("Authorization", "Bearer key"),)
        self.place = ServerPlace("remote", http_url=url, grpc_url=url, protocol=protocol, headers=key)


class Options:
    """What the target reads of the options of an analysis."""

    def __init__(self, folder: Path, rest: str, **flags: str) -> None:
        program = folder / "server"
        program.write_text(PROGRAM.format(folder=folder, rest=rest))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        (folder / "repository").mkdir()
        self.repository = str(folder / "repository")
        self.place = ServerPlace(program=str(program), flags=flags)


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize(
    ("url", "metrics"),
    [
        ("far:8000", "far:8002/metrics"),
        ("far", "far:8002/metrics"),
        ("http://far/base", "far:8002/metrics"),
        ("[::1]", "[::1]:8002/metrics"),
    ],
)
def test_metrics_are_those_of_the_machine_that_the_server_is_on(url: str, metrics: str) -> None:
    with open_target(Remote(url), nullcontext) as target:  # type: ignore[arg-type]
        assert (target.metrics_url, target.metrics_headers) == (metrics, target.place.headers)


def test_what_is_no_address_is_told() -> None:
    with pytest.raises(InputError, match="'far:x' is no address"), open_target(Remote("far:x"), nullcontext):  # type: ignore[arg-type]
        pass


@pytest.mark.parametrize(("url", "protocol"), [("https://far:8000", "http"), ("grpcs://far:8001", "grpc")])
def test_a_key_that_is_sent_behind_tls_is_not_sent_without(url: str, protocol: str) -> None:
    with open_target(Remote(url, protocol), nullcontext) as target:  # type: ignore[arg-type]
        assert (target.metrics_url, target.metrics_headers) == ("far:8002/metrics", ())


def test_one_that_ends_at_once_leaves_no_log(tmp_path: Path, scratch: Path) -> None:
    options = Options(tmp_path, "echo no such flag; exit 1")
    with pytest.raises(UnreachableError, match="no such flag"), open_target(options, nullcontext):  # type: ignore[arg-type]
        pass
    assert list(scratch.iterdir()) == []
    words = (tmp_path / "words").read_text().split()
    assert {f"--{name}-address=127.0.0.1" for name in ("http", "grpc", "metrics")} <= set(words)


def test_an_address_that_the_user_gives_is_used(tmp_path: Path) -> None:
    options = Options(tmp_path, "exit 1", http_address="0.0.0.0")
    with pytest.raises(UnreachableError), open_target(options, nullcontext):  # type: ignore[arg-type]
        pass
    words = (tmp_path / "words").read_text().split()
    assert [word for word in words if "http-address" in word] == ["--http-address=0.0.0.0"]


def test_an_interruption_of_the_start_ends_the_server(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(tmp_path, "exec sleep 60")

    def interrupted(server: ChildServer, *words: object, **named: object) -> None:
        end_s = time.monotonic() + 10
        while not (tmp_path / "id").exists() and time.monotonic() < end_s:
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(ChildServer, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt), open_target(options, nullcontext):  # type: ignore[arg-type]
        pass
    time.sleep(0.05)
    assert not Path(f"/proc/{(tmp_path / 'id').read_text().strip()}").exists()
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(("url", "is_tls"), [("far:8001", False), ("grpcs://far:8001", True), ("https://far", True)])
@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_load_goes_over_tls_where_the_questions_do(tmp_path: Path, url: str, is_tls: bool, protocol: str) -> None:
    trusted = tmp_path / "ca.pem"
    trusted.touch()
    place = ServerPlace("remote", http_url=url, grpc_url=url, protocol=protocol)
    target = Target(ANY, ANY, replace(place, ca_file=str(trusted)), url, url, "")
    load = Load("m", 1)
    loads = [
        perf_options(load, target.load_words(is_language_model=False)),
        load_options(llm_options(load, target.load_words(is_language_model=True))),
    ]
    questions, _ = place_of(ConnectionOptions(url, is_grpc=protocol == "grpc"))
    assert [server_address(one).is_tls for one in loads] == [is_tls, is_tls] == [questions.is_tls] * 2
    assert [one.tls.ca_file for one in loads] == [str(trusted)] * 2
