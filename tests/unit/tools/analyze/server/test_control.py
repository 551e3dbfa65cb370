"""Models are as they were found, whatever was done with them."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from trireme.tools.analyze.errors import Interrupted
from trireme.tools.analyze.server.control import ControlRefusedError, ModelControl
from trireme.tools.analyze.trial import Setting
from trireme.tools.client.errors import AnswerError, UnreachableError
from trireme.tools.client.port import ServerClient

FILE = {"name": "m", "max_batch_size": 4}


class Repository:
    """A server with one model, whose file says FILE."""

    place = "memory"

    def __init__(self, loaded: dict[str, Any] | None) -> None:
        self.loaded = loaded
        self.load_count = 0
        self.is_interrupted = False
        self.is_gone = False
        self.is_refusing = False

    def index(self) -> list[dict[str, str]]:
        if self.is_gone:
            raise UnreachableError("no server answers")
        return [{"name": "m", "state": "READY" if self.loaded is not None else "UNAVAILABLE"}]

    def config(self, model: str, version: str) -> dict[str, Any]:
        assert self.loaded is not None
        return dict(self.loaded)

    def load(self, model: str, config: str | None) -> None:
        if self.is_refusing:
            raise AnswerError("explicit model load / unload is not allowed if polling is disabled")
        self.load_count += 1
        self.loaded = FILE if config is None else json.loads(config)
        if self.is_interrupted:
            raise Interrupted

    def unload(self, model: str, with_dependents: bool) -> None:
        self.loaded = None


def control_of(server: Repository) -> ModelControl:
    client = cast(ServerClient, server)
    return ModelControl(client, client, 0, lambda text: None)


@pytest.mark.parametrize(
    "before", [FILE, {"name": "m", "max_batch_size": 7}, None], ids=["file", "request", "unloaded"]
)
def test_a_model_is_put_back_to_how_it_was_found(before: dict[str, Any] | None) -> None:
    server = Repository(before)
    control = control_of(server)
    control.use("m", Setting(max_batch_size=16))
    assert server.loaded is not None
    assert server.loaded["max_batch_size"] == 16
    assert control.put_back() == []
    assert server.loaded == before


@pytest.mark.parametrize(
    "before", [FILE, {"name": "m", "max_batch_size": 7}, None], ids=["file", "request", "unloaded"]
)
def test_a_model_whose_new_file_did_not_hold_is_put_back_to_how_it_was_found(before: dict[str, Any] | None) -> None:
    server = Repository(before)
    control = control_of(server)
    control.own_config("m")
    assert control.put_back() == []
    control.reload("m")
    assert control.put_back(["m"]) == []
    assert server.loaded == before


@pytest.mark.parametrize("before", [FILE, None], ids=["loaded", "unloaded"])
def test_a_model_whose_new_file_is_kept_is_not_put_back(
    before: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Repository(before)
    control = control_of(server)
    control.use("m", Setting(max_batch_size=16))
    monkeypatch.setitem(FILE, "max_batch_size", 32)
    control.reload("m")
    control.keep(["m"])
    assert control.put_back() == []
    assert server.loaded == (None if before is None else {"name": "m", "max_batch_size": 32})


def test_a_load_that_was_interrupted_is_undone() -> None:
    server = Repository(None)
    control = control_of(server)
    server.is_interrupted = True
    with pytest.raises(Interrupted):
        control.own_config("m")
    server.is_interrupted = False
    assert control.put_back() == []
    assert server.loaded is None


def test_a_model_that_is_as_it_was_is_not_loaded_again() -> None:
    server = Repository(FILE)
    control = control_of(server)
    control.use("m", Setting(max_batch_size=16))
    control.use("m", Setting())
    loads = server.load_count
    assert control.put_back() == []
    assert server.load_count == loads
    assert server.loaded == FILE


def test_a_process_that_knows_nothing_of_the_changes_puts_back_too() -> None:
    server = Repository(FILE)
    guard, control = control_of(server), control_of(server)
    for one in (guard, control):
        one.own_config("m")
    control.use("m", Setting(max_batch_size=16))
    guard.put_back_late(["m"])
    assert server.loaded == FILE


def test_a_server_that_does_not_answer_is_told_once() -> None:
    server = Repository(FILE)
    control = control_of(server)
    control.use("m", Setting(max_batch_size=16))
    server.is_gone = True
    assert control.put_back() == [
        "model 'm' could not be put back to its own configuration: no server answers",
    ]
    assert control.put_back() == []


@pytest.mark.parametrize("before", [FILE, None], ids=["loaded", "unloaded"])
def test_where_the_server_lets_nobody_change_anything_there_is_nothing_to_put_back(
    before: dict[str, Any] | None,
) -> None:
    server = Repository(before)
    server.is_refusing = True
    control = control_of(server)
    with pytest.raises(ControlRefusedError, match="--model-control-mode explicit"):
        control.use("m", Setting(max_batch_size=16))
    assert control.put_back() == []
