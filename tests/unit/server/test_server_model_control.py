"""The model control API: modes, names and the index."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from trireme.core.errors import ErrorKind
from trireme.registry.repository.repositories import Repositories


@pytest.mark.parametrize(
    ("mode", "obstacle"),
    [
        ("none", "with --model-control-mode=none; --model-control-mode=explicit allows it"),
        ("poll", "if polling is enabled"),
    ],
)
def test_only_explicit_mode_allows_load_and_unload(world: Any, mode: str, obstacle: str) -> None:
    async def scenario() -> None:
        server = await world.started(control_mode=mode, poll_seconds=0)
        for operation in (server.model_control.load("model"), server.model_control.unload("model")):
            error = await world.refused_later(operation)
            assert error.kind is ErrorKind.UNAVAILABLE
            assert error.message == f"explicit model load / unload is not allowed {obstacle}"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "Model name cannot be empty. Please enter a valid name to deploy."),
        ("  ", "Model name cannot be empty. Please enter a valid name to deploy."),
        ("..", "invalid model name '..', model name must not contain path traversal characters"),
        ("a/b", "invalid model name 'a/b', model name must not contain path traversal characters"),
        ("../a", "invalid model name '../a', model name must not contain path traversal characters"),
    ],
)
def test_names_that_are_none(world: Any, name: str, text: str) -> None:
    async def scenario() -> None:
        server = await world.started(control_mode="explicit")
        error = await world.refused_later(server.model_control.load(name))
        assert (error.kind, error.message) == (ErrorKind.INVALID_ARGUMENT, text)

    asyncio.run(scenario())


def test_load_of_what_is_not_there(world: Any) -> None:
    async def scenario() -> None:
        server = await world.started(control_mode="explicit")
        error = await world.refused_later(server.model_control.load("nothere"))
        assert error.kind is ErrorKind.INTERNAL
        assert error.message == "failed to load 'nothere', failed to poll from model repository"
        assert await server.model_control.index(False) == []

    asyncio.run(scenario())


def test_failed_load_tells_the_models_own_error(world: Any) -> None:
    async def scenario() -> None:
        world.add("bad", code="fail ValueError: boom")
        server = await world.started(control_mode="explicit")
        error = await world.refused_later(server.model_control.load("bad"))
        assert error.message == (
            "load failed for model 'bad': version 1 is at UNAVAILABLE state: Internal: ValueError: boom;\n"
        )
        assert world.states(server) == [("bad", "1", "UNAVAILABLE", "Internal: ValueError: boom")]

    asyncio.run(scenario())


def test_index_lists_folders_as_they_are_now(world: Any) -> None:
    async def scenario() -> None:
        world.add("b")
        server = await world.started()
        world.add("a")
        assert world.states(server) == [("a", "", "", ""), ("b", "1", "READY", "")]
        assert [entry.name for entry in await server.model_control.index(True)] == ["b"]

    asyncio.run(scenario())


def test_index_shows_a_model_while_it_loads(world: Any) -> None:
    async def scenario() -> None:
        world.add("model", code="wait")
        server = await world.started(control_mode="explicit")
        load = asyncio.create_task(server.model_control.load("model"))
        await world.settle(lambda: world.backends.loading == 1)
        assert world.states(server) == [("model", "1", "LOADING", "")]
        error = world.refused(lambda: server.inference.find("model", "1"))
        assert error.message == "Request for unknown model: 'model' version 1 is not at ready state"
        world.backends.gate.set()
        await load

    asyncio.run(scenario())


def test_versions_are_sorted_as_numbers(world: Any) -> None:
    config = (
        'backend: "python" version_policy { all {} } input [ { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] } ] '
        'output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] } ]'
    )
    world.add("model", config, versions=(10, 9, 1))
    server = asyncio.run(world.started())
    assert [entry.version for entry in asyncio.run(server.model_control.index(False))] == ["1", "9", "10"]


def test_index_reads_the_disk_beside_the_event_loop_once_for_all(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world.add("a")
        server = await world.started()
        scan, gate, begun = Repositories.scan, threading.Event(), threading.Semaphore(0)
        threads: list[int] = []

        def slow_scan(repositories: Repositories) -> Any:
            threads.append(threading.get_ident())
            begun.release()
            assert gate.wait(10)
            return scan(repositories)

        monkeypatch.setattr(Repositories, "scan", slow_scan)
        first = asyncio.create_task(server.model_control.index(False))
        assert await asyncio.to_thread(begun.acquire, timeout=10)
        world.add("b")
        later = [asyncio.create_task(server.model_control.index(False)) for _ in range(100)]
        later.pop().cancel()
        await asyncio.sleep(0)
        assert len(threads) == 1
        gate.set()
        await first
        for answer in later:
            assert [entry.name for entry in await answer] == ["a", "b"]
        assert len(threads) == 2
        assert threading.get_ident() not in threads

    asyncio.run(scenario())


def test_index_goes_on_after_a_scan_that_raised(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world.add("a")
        server = await world.started()

        def broken_scan(repositories: Repositories) -> Any:
            raise RuntimeError("no disk")

        with monkeypatch.context() as patch:
            patch.setattr(Repositories, "scan", broken_scan)
            with pytest.raises(RuntimeError, match="no disk"):
                await server.model_control.index(False)
        assert [entry.name for entry in await server.model_control.index(False)] == ["a"]

    asyncio.run(scenario())


def test_a_configuration_has_a_limit(world: Any) -> None:
    async def scenario() -> None:
        server = await world.started(control_mode="explicit")
        error = await world.refused_later(server.model_control.load("model", " " * ((1 << 20) + 1)))
        assert error.kind is ErrorKind.INVALID_ARGUMENT
        assert error.message == (
            "load parameter 'config' of model 'model' has 1048577 characters, more than the 1048576 that a "
            "configuration may have"
        )

    asyncio.run(scenario())
