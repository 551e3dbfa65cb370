"""Poll mode: the served models follow the folders."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trireme.core.load_failure import LoadFailure
from trireme.registry.loading.poller import RepositoryPoller
from trireme.registry.repository.repositories import Repositories


def poller_of(server: Any) -> RepositoryPoller:
    registry = server.registry
    return RepositoryPoller(registry.models, registry._repositories, registry._loader, registry._begin)


def polled(world: Any, **options: Any) -> Any:
    return world.started(control_mode="poll", poll_seconds=0, **options)


def test_new_folder_is_loaded_and_vanished_folder_unloaded(world: Any) -> None:
    async def scenario() -> None:
        gone = world.add("gone")
        server = await polled(world)
        shutil.rmtree(gone)
        world.add("fresh")
        await poller_of(server).look()
        assert [entry.name for entry in server.registry.index(True, server.registry.scan())] == ["fresh"]
        await world.settle(lambda: not server.registry.models.draining)
        assert [entry.name for entry in server.registry.index(False, server.registry.scan())] == ["fresh"]

    asyncio.run(scenario())


def test_changed_folder_is_reloaded_and_others_are_left_alone(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("changes")
        world.add("stays")
        server = await polled(world)
        poller = poller_of(server)
        await poller.look()
        assert len(world.backends.made) == 2
        os.utime(folder / "1" / "model.py", (1, 1))
        await poller.look()
        assert [backend.source.name for backend in world.backends.made].count("changes") == 2
        assert len(world.backends.made) == 3

    asyncio.run(scenario())


def test_folder_with_nothing_in_it_yet_is_told_of_in_words(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        folder = world.add("stays")
        server = await polled(world)
        (folder.parent / "begun" / "1").mkdir(parents=True)
        await poller_of(server).look()
        assert "'begun' is loaded again as soon as its files change" in caplog.messages
        assert [entry.name for entry in server.registry.index(True, server.registry.scan())] == ["stays"]

    with caplog.at_level(logging.INFO):
        asyncio.run(scenario())


def test_failed_model_is_tried_again_ever_more_seldom(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        world.add("bad", code="fail boom")
        poller = poller_of(server := await polled(world))
        tries = []
        for _ in range(16):
            await poller.look()
            tries.append(len(world.backends.made))
        assert tries == [2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 5, 5]
        assert world.states(server) == [("bad", "1", "UNAVAILABLE", "Internal: boom")]

    with_handler(caplog, lambda: asyncio.run(scenario()))
    assert [text for text in caplog.messages if "Internal: boom" in text] == [
        "failed to load 'bad' version 1: Internal: boom",  # at the start
        "failed to load 'bad' version 1: Internal: boom",  # by the poller, which did not know of it
    ]


def test_failure_that_the_start_told_of_is_not_told_again(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        folder = world.add("bad", code="fail boom")
        world.add("garbled", config="nonsense: 3")
        registry = (await polled(world)).registry
        caplog.clear()
        poller = RepositoryPoller(
            registry.models, registry._repositories, registry._loader, registry._begin, ["bad", "garbled"]
        )
        for _ in range(4):
            await poller.look()
        assert len(world.backends.made) == 2
        assert "boom" not in caplog.text
        assert "garbled" not in caplog.text
        (folder / "1" / "model.py").write_text("fail another reason")
        await poller.look()
        assert "failed to load 'bad' version 1: Internal: another reason" in caplog.messages
        assert "'bad' is loaded again as soon as its files change" in caplog.messages
        (folder / "1" / "model.py").write_text("# mended")
        await poller.look()
        assert "successfully loaded 'bad'" in caplog.messages

    caplog.set_level(logging.INFO, "trireme")
    with_handler(caplog, lambda: asyncio.run(scenario()))


def test_watched_model_that_failed_is_left_alone_until_its_files_change(
    world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[LoadFailure] = []

    async def scenario() -> None:
        folder = world.add("bad", code="fail boom")
        world.add_ensemble("whole", "bad")
        server = await polled(world)
        poller = poller_of(server)
        poller.retries_unchanged, poller.report = False, told.extend
        caplog.clear()
        for _ in range(8):
            await poller.look()
        assert len(world.backends.made) == 2
        assert [(failure.name, failure.folder) for failure in told if failure.name == "bad"] == [("bad", folder)]
        assert [failure.text for failure in told if failure.name == "bad"] == ["Internal: boom"]
        assert "boom" not in caplog.text
        (folder / "1" / "model.py").write_text("# mended")
        await poller.look()
        ready = [entry.name for entry in server.registry.index(True, server.registry.scan())]
        assert ready == ["bad", "whole"]  # what is made of it comes with it

    with_handler(caplog, lambda: asyncio.run(scenario()))


def with_handler(caplog: pytest.LogCaptureFixture, run: Callable[[], None]) -> None:
    """Runs with pytest's handler where the server's is, so that what that leaves out is left out."""
    logger = logging.getLogger("trireme")
    logger.addHandler(caplog.handler)
    logger.propagate = False
    try:
        run()
    finally:
        logger.propagate = True
        logger.removeHandler(caplog.handler)


def test_repository_that_is_away_is_told_once(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        poller = poller_of(await polled(world))
        moved = world.repository.rename(world.root / "moved")
        await poller.look()
        await poller.look()
        moved.rename(world.repository)
        await poller.look()

    asyncio.run(scenario())
    assert caplog.text.count("failed to poll model repository") == 1


def test_unreadable_config_keeps_what_serves(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("model")
        server = await polled(world)
        (folder / "config.pbtxt").write_text("nonsense: 1")
        await poller_of(server).look()
        assert (await world.infer(server, "model")).error is None

    asyncio.run(scenario())


def test_nothing_is_kept_of_an_unreadable_folder_that_is_gone(world: Any) -> None:
    async def scenario() -> None:
        poller = poller_of(server := await polled(world))
        models = server.registry.models
        folder = world.add("broken")
        (folder / "config.pbtxt").write_text("nonsense: 1")
        await poller.look()
        repository = world.repository.rename(world.root / "moved")
        await poller.look()
        assert "nonsense" in models.problem_of("broken"), "nobody knows whether it is gone"
        repository.rename(world.repository)
        gone = folder.rename(world.root / "gone")
        await poller.look()
        assert (models.problem_of("broken"), models.unreadable) == ("", {})
        gone.rename(folder)
        await poller.look()
        assert "nonsense" in models.problem_of("broken"), "it is a new one, which is looked at as soon as it is seen"

    asyncio.run(scenario())


def test_repository_that_is_away_unloads_nothing(
    world: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        world.add("model")
        server = await polled(world)
        moved = world.repository.rename(world.root / "moved")
        await poller_of(server).look()
        assert (await world.infer(server, "model")).error is None
        assert server.registry.index(True, server.registry.scan())[0].name == "model"
        moved.rename(world.repository)

    asyncio.run(scenario())
    assert "failed to poll model repository" in caplog.text


def test_poller_runs_by_itself_until_the_registry_stops(world: Any) -> None:
    async def scenario() -> None:
        server = await world.started(control_mode="poll", poll_seconds=0.01)
        world.add("fresh")
        await world.settle(
            lambda: [entry.name for entry in server.registry.index(True, server.registry.scan())] == ["fresh"]
        )
        assert await server.registry.stop(5)

    asyncio.run(scenario())


def test_scan_tells_duplicates_from_models(tmp_path: Path) -> None:
    for repository, names in (("one", ("a", "b")), ("two", ("b", "c"))):
        for name in names:
            (tmp_path / repository / name).mkdir(parents=True)
    scan = Repositories((tmp_path / "one", tmp_path / "two")).scan()
    assert sorted(model_id.name for model_id in scan.folders) == ["a", "c"]
    assert scan.duplicates == {"b"}
    scan = Repositories((tmp_path / "one", tmp_path / "two"), has_namespacing=True).scan()
    assert len(scan.folders) == 4
    assert str(min(scan.folders)) == f"{tmp_path / 'one'}::a"


def test_folder_that_cannot_be_looked_at_is_told_once_and_others_follow(
    world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        link = world.add("stays").with_name("loop")
        server = await polled(world)
        link.symlink_to("loop")
        world.add("fresh")
        poller = poller_of(server)
        for _ in range(3):
            await poller.look()
        assert [entry.name for entry in server.registry.index(True, server.registry.scan())] == ["fresh", "stays"]
        told = [record.getMessage() for record in caplog.records if "'loop'" in record.getMessage()]
        assert told == [
            f"Poll failed for model directory 'loop': [Errno 40] Too many levels of symbolic links: '{link}'"
        ]
        link.unlink()
        world.add("loop")
        await poller.look()
        assert len(server.registry.index(True, server.registry.scan())) == 3

    asyncio.run(scenario())
