"""Loads that bring their own configuration or files."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from trireme.core.errors import ErrorKind, InvalidArgumentError
from trireme.registry.repository.load_override import LoadOverride, TemporaryFolder

POLL_FAILURE = "failed to load 'model', failed to poll from model repository"


def explicit(world: Any) -> Any:
    return world.started(control_mode="explicit")


def test_config_override_replaces_the_config_and_reloads_where_it_is_another(world: Any) -> None:
    async def scenario() -> None:
        world.add("model")
        server = await explicit(world)
        await server.model_control.load("model")
        await server.model_control.load("model", world.override_json(max_batch_size=8))
        assert server.metadata.config("model", "").max_batch_size == 8
        await server.model_control.load("model", world.override_json(max_batch_size=8))
        assert len(world.backends.made) == 2
        await server.model_control.load("model", world.override_json(max_batch_size=4))
        assert len(world.backends.made) == 3

    asyncio.run(scenario())


def test_override_is_kept_until_files_change_or_the_model_is_unloaded(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("model")
        server = await explicit(world)
        await server.model_control.load("model", world.override_json(max_batch_size=8))
        await server.model_control.load("model")
        assert server.metadata.config("model", "").max_batch_size == 8
        os.utime(folder / "1" / "model.py", (1, 1))
        await server.model_control.load("model")
        assert server.metadata.config("model", "").max_batch_size == 0
        await server.model_control.load("model", world.override_json(max_batch_size=8))
        await server.model_control.unload("model")
        await server.model_control.load("model")
        assert server.metadata.config("model", "").max_batch_size == 0

    asyncio.run(scenario())


def test_override_of_the_instances_alone_is_made_in_place(world: Any) -> None:
    async def scenario() -> None:
        world.add("model")
        server = await explicit(world)
        await server.model_control.load("model")
        group = [{"count": 2, "kind": "KIND_CPU"}]
        await server.model_control.load("model", world.override_json(instance_group=group))
        [backend] = world.backends.made
        assert len(backend.instances) == 2

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ("{xx", "Invalid config override: "),
        ('{"max_bach_size": 1}', "Invalid config override: max_bach_size: Cannot find field, did you mean 'max_batch"),
        ('{"name": "other"}', "unexpected directory name 'model' for model 'other'"),
    ],
)
def test_bad_override_is_a_poll_failure_and_the_model_goes_on(
    world: Any, config: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        world.add("model")
        server = await explicit(world)
        await server.model_control.load("model")
        error = await world.refused_later(server.model_control.load("model", config))
        assert error.kind == ErrorKind.INTERNAL
        assert error.message.startswith(f"{POLL_FAILURE}: {reason}")
        assert f"Poll failed for model directory 'model': {reason}" in caplog.text
        assert (await world.infer(server, "model")).error is None

    asyncio.run(scenario())


def test_files_make_a_model_that_no_repository_has(world: Any) -> None:
    async def scenario() -> None:
        server = await explicit(world)
        await server.model_control.load("fresh", world.override_json(), {"file:1/model.py": b"", "file:a/b.txt": b"x"})
        [backend] = world.backends.made
        folder = backend.source.model_dir
        assert folder.name == "fresh"
        assert (folder / "a" / "b.txt").read_bytes() == b"x"
        assert (await world.infer(server, "fresh")).error is None
        world.backends.made.clear()
        del backend
        await server.model_control.unload("fresh")
        await world.settle(lambda: not folder.exists())
        assert world.states(server) == []
        assert server.registry.models.records == {}

    asyncio.run(scenario())


def test_next_plain_load_goes_back_to_the_repository(world: Any) -> None:
    async def scenario() -> None:
        world.add("model")
        server = await explicit(world)
        await server.model_control.load("model", world.override_json(), {"file:1/model.py": b""})
        assert world.backends.made[0].source.model_dir.parent != world.repository
        await server.model_control.load("model")
        assert world.backends.made[1].source.model_dir.parent == world.repository

    asyncio.run(scenario())


def test_next_plain_load_of_a_model_in_no_repository_fails_and_it_goes_on(world: Any) -> None:
    async def scenario() -> None:
        server = await explicit(world)
        await server.model_control.load("model", world.override_json(), {"file:1/model.py": b""})
        error = await world.refused_later(server.model_control.load("model"))
        assert error.message == POLL_FAILURE
        assert (await world.infer(server, "model")).error is None

    asyncio.run(scenario())


def test_files_without_a_config_are_a_poll_failure(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        server = await explicit(world)
        error = await world.refused_later(server.model_control.load("model", None, {"file:1/model.py": b""}))
        assert error.message == f"{POLL_FAILURE}: {reason}"

    reason = "Load parameter 'config' must be specified for model file override"
    asyncio.run(scenario())
    assert f"Poll failed for model directory 'model': {reason}" in caplog.messages


@pytest.mark.parametrize("parameter", ["file:../x", "file:/etc/x", "file:1/../../x", "file:", "file:."])
def test_file_that_leaves_the_folder_is_refused(parameter: str) -> None:
    with pytest.raises(Exception, match="must stay within model directory") as caught:
        LoadOverride.create("model", "{}", {parameter: b"x"})
    assert f"Invalid file parameter '{parameter}' with normalized path '" in str(caught.value)


def test_temporary_folder_goes_with_its_last_user() -> None:
    folder = TemporaryFolder("model")
    path = folder.path
    folder.write("file:1/model.py", b"pass")
    assert (path / "1" / "model.py").exists()
    del folder
    assert not path.parent.exists()


@pytest.mark.parametrize(
    ("name", "files"),
    [("a/b", {"file:1/model.py": b""}), ("model", {"file:1/model.py": b"", "file:../../x": b""})],
)
def test_a_refused_load_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, files: dict[str, bytes]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    with pytest.raises((InvalidArgumentError, OSError)) as caught:
        LoadOverride.create(name, "{}", files)

    assert caught.value is not None  # which keeps the frames that know the folder
    assert list(tmp_path.iterdir()) == []


def test_the_files_of_a_failed_load_are_removed_while_its_error_lives(world: Any) -> None:
    async def scenario() -> None:
        server = await explicit(world)
        files = {"file:1/model.py": b"fail boom"}
        error = await world.refused_later(server.model_control.load("model", world.override_json(), files))
        assert "boom" in error.message
        assert not world.backends.made[0].source.model_dir.parent.exists()

    asyncio.run(scenario())


def test_the_files_stay_until_the_version_that_did_load_has_ended(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    had_files = []
    kind: Any = sys.modules[type(world).__module__].FakeBackend
    stop = kind.stop

    async def slow_stop(backend: Any) -> None:
        await asyncio.sleep(0.05)
        had_files.append(backend.source.model_dir.exists())
        await stop(backend)

    monkeypatch.setattr(kind, "stop", slow_stop)

    async def scenario() -> None:
        server = await explicit(world)
        files = {"file:1/model.py": b"", "file:2/model.py": b"fail boom"}
        config = world.override_json(version_policy={"all": {}})
        await world.refused_later(server.model_control.load("model", config, files))
        await world.settle(lambda: not world.backends.made[0].source.model_dir.parent.exists())
        assert had_files == [True, True]

    asyncio.run(scenario())


def test_the_files_of_a_model_that_is_replaced_or_unloaded_go_without_a_collection(world: Any) -> None:
    async def scenario() -> None:
        server = await explicit(world)
        gc.disable()
        for _ in range(2):
            await server.model_control.load("model", world.override_json(), {"file:1/model.py": b""})
        first, second = (backend.source.model_dir.parent for backend in world.backends.made)
        await world.settle(lambda: not first.exists())
        assert second.exists()
        await server.model_control.unload("model")
        await world.settle(lambda: not second.exists())

    try:
        asyncio.run(scenario())
    finally:
        gc.enable()
