"""One model in detail: which version is meant, and what is said where there is none."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from trireme.console.model_detail import ModelDetails
from trireme.console.probes import Probes
from trireme.console.sampler import Sampler
from trireme.core.errors import InvalidArgumentError, NotFoundError
from trireme.observe.metrics import MetricsRegistry
from trireme.observe.metrics_options import MetricsOptions

CONFIG = """
backend: "python"
version_policy { all {} }
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 4 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 4 ] } ]
"""


def details(world: Any, config: str = CONFIG) -> ModelDetails:
    world.add("model", config, versions=(1, 10, 2))
    server = asyncio.run(world.started())
    metrics = MetricsRegistry(MetricsOptions())
    probes = Probes(lambda backend: 0, lambda backend: 0.0, list, list)
    return ModelDetails(server, metrics, Sampler(server, metrics, probes))


@pytest.mark.parametrize(("asked", "version"), [("", "10"), ("2", "2"), ("002", "2")])
def test_version_is_found_however_it_is_written(world: Any, asked: str, version: str) -> None:
    found = details(world)
    detail = found.describe("model", asked)
    assert (detail["version"], detail["state"], detail["serving"]["backend"]) == (version, "READY", "python")
    assert found.config("model", asked, None)["config"]["name"] == "model"


@pytest.mark.parametrize("version", ["0", "0" * 3000, "3", "9" * 18])
def test_version_that_does_not_exist_is_not_found(world: Any, version: str) -> None:
    found = details(world)
    for ask in (found.describe, lambda name, number: found.config(name, number, None)):
        with pytest.raises(NotFoundError, match=f"'model' version {int(version)} is not found"):
            ask("model", version)


@pytest.mark.parametrize("version", ["9" * 20, "9" * 5000])
def test_number_that_is_no_version_is_refused(world: Any, version: str) -> None:
    with pytest.raises(InvalidArgumentError, match="version should be an integral value > 0"):
        details(world).describe("model", version)


def test_worker_that_failed_is_told_of_with_its_exit_code_and_without_what_it_printed(world: Any) -> None:
    found = details(world)
    watch = found._metrics.workers.watch("model", 10, "model_0")
    watch.count_failure("exited", "The worker process (pid 7) exited with code 3. Its last output:\n  a secret")
    watch.count_restart()
    told = [(event["reason"], event["text"]) for event in found.describe("model", "")["events"]]
    assert told == [("exited", "The worker process (pid 7) exited with code 3."), ("restarted", "")]


def test_newest_version_alone_is_offered_for_a_conversation(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trireme.console.model_detail.CHAT_BACKENDS", frozenset(("python",)))
    text = CONFIG.replace("TYPE_INT32 dims: [ 4 ]", "TYPE_STRING dims: [ 1 ]")
    found = details(world, text.replace('"IN"', '"text_input"').replace('"OUT"', '"text_output"'))
    offered = {version: found.describe("model", version)["serving"]["is_chat"] for version in ("", "1", "2", "10")}
    assert offered == {"": True, "1": False, "2": False, "10": True}


def test_model_that_nobody_knows_is_not_found(world: Any) -> None:
    with pytest.raises(NotFoundError, match="there is no model 'nobody'"):
        details(world).describe("nobody", "")


def test_file_of_a_model_that_does_not_serve_is_shown_as_it_is(world: Any, tmp_path: Path) -> None:
    found = details(world)
    assert found.serves("model", "")
    folder = found.folder_of("model")
    assert folder is not None
    assert "version_policy { all {} }" in found.read_file(folder)["text"]
    (folder / "config.pbtxt").write_text("no configuration [")
    assert found.read_file(folder) == {"text": "no configuration ["}
    assert found.read_file(tmp_path) == found.read_file(None) == {"text": ""}
