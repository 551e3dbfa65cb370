"""Loads and reloads through the API: nobody who uses a model notices that it is replaced."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

from trireme.core.errors import ErrorKind

POLL_FAILURE = "failed to load '{}', failed to poll from model repository"


def touch(path: Path, seconds: int = 10) -> None:
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + seconds * 1_000_000_000))


def explicit(world: Any, **options: Any) -> Any:
    return world.started(control_mode="explicit", **options)


def test_load_makes_the_model_serve(world: Any) -> None:
    async def scenario() -> None:
        world.add("model")
        server = await explicit(world)
        await server.model_control.load("model")
        assert (await world.infer(server, "model")).error is None
        assert world.states(server) == [("model", "1", "READY", "")]

    asyncio.run(scenario())


def test_second_load_of_unmodified_files_does_nothing(world: Any) -> None:
    async def scenario() -> None:
        world.add("model")
        server = await explicit(world)
        await server.model_control.load("model")
        await server.model_control.load("model")
        assert len(world.backends.made) == 1

    asyncio.run(scenario())


def test_bytecode_that_python_writes_is_no_modification(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("model")
        server = await explicit(world)
        await server.model_control.load("model")
        (folder / "1" / "__pycache__").mkdir()
        (folder / "1" / "__pycache__" / "model.cpython-311.pyc").write_bytes(b"x")
        (folder / "__pycache__").mkdir()
        await server.model_control.load("model")
        assert len(world.backends.made) == 1

    asyncio.run(scenario())


def test_modified_file_reloads_and_the_old_copy_ends(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("model")
        server = await explicit(world)
        await server.model_control.load("model")
        touch(folder / "1" / "model.py")
        await server.model_control.load("model")
        first, second = world.backends.made
        await world.settle(lambda: first.is_stopped)
        assert not second.is_stopped
        assert (await world.infer(server, "model")).parameters == {"copy": 2}

    asyncio.run(scenario())


def test_new_copy_is_ready_before_the_old_one_leaves(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("model")
        server = await explicit(world)
        await server.model_control.load("model")
        (folder / "1" / "model.py").write_text("wait")
        reload = asyncio.create_task(server.model_control.load("model"))
        await world.settle(lambda: world.backends.loading == 1)
        assert world.states(server) == [("model", "1", "READY", "")]
        assert (await world.infer(server, "model")).parameters == {"copy": 1}
        world.backends.gate.set()
        await reload
        assert (await world.infer(server, "model")).parameters == {"copy": 2}

    asyncio.run(scenario())


def test_requests_of_the_old_copy_are_answered_by_it(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("model", code="hold")
        server = await explicit(world)
        await server.model_control.load("model")
        request, answer = world.request_for("model")
        server.inference.infer(request)
        (folder / "1" / "model.py").write_text("")
        await server.model_control.load("model")
        first = world.backends.made[0]
        assert not first.is_stopped
        assert not answer.done()
        assert (await world.infer(server, "model")).parameters == {"copy": 2}
        first.instances[0].release()
        assert (await answer).parameters == {"copy": 1}
        await world.settle(lambda: first.is_stopped)

    asyncio.run(scenario())


def test_request_found_before_a_reload_and_sent_after_it_is_served(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("model")
        server = await explicit(world)
        await server.model_control.load("model")
        found = server.inference.find("model", "")
        touch(folder / "1" / "model.py")
        await server.model_control.load("model")
        await world.settle(lambda: world.backends.made[0].is_stopped)
        request, answer = world.request_for("model")
        server.inference.infer_on(found, request)
        assert (await answer).parameters == {"copy": 2}

    asyncio.run(scenario())


def test_failed_reload_keeps_the_old_copy_and_is_tried_again(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("model")
        server = await explicit(world)
        await server.model_control.load("model")
        (folder / "1" / "model.py").write_text("fail boom")
        for _ in range(2):
            error = await world.refused_later(server.model_control.load("model"))
            assert error.kind is ErrorKind.INVALID_ARGUMENT
            text = "load failed for model 'model': version 1 is at UNAVAILABLE state: Internal: boom;\n"
            assert error.message == text
            assert world.states(server) == [("model", "1", "READY", "")]
            assert (await world.infer(server, "model")).parameters == {"copy": 1}
        assert len(world.backends.made) == 3
        (folder / "1" / "model.py").write_text("")
        await server.model_control.load("model")
        assert (await world.infer(server, "model")).parameters == {"copy": 4}

    asyncio.run(scenario())


def test_unreadable_config_keeps_the_old_copy(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("model")
        server = await explicit(world)
        await server.model_control.load("model")
        (folder / "config.pbtxt").write_text("nonsense: 1")
        error = await world.refused_later(server.model_control.load("model"))
        assert error.kind == ErrorKind.INTERNAL
        assert error.message.startswith(f"{POLL_FAILURE.format('model')}: ")
        assert "nonsense" in error.message
        assert (await world.infer(server, "model")).error is None

    asyncio.run(scenario())


def test_what_was_wrong_with_a_folder_is_not_said_of_one_that_has_vanished(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("model")
        server = await explicit(world)
        (folder / "config.pbtxt").write_text("nonsense: 1")
        await world.refused_later(server.model_control.load("model"))
        assert "nonsense" in server.registry.models.problem_of("model")
        shutil.rmtree(folder)
        await world.refused_later(server.model_control.load("model"))
        assert server.registry.models.problem_of("model") == ""

    asyncio.run(scenario())


def test_vanished_folder_is_a_poll_failure_and_the_model_goes_on(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("model")
        server = await explicit(world)
        await server.model_control.load("model")
        shutil.rmtree(folder)
        error = await world.refused_later(server.model_control.load("model"))
        assert error.message == POLL_FAILURE.format("model")
        assert (await world.infer(server, "model")).error is None

    asyncio.run(scenario())


def test_several_failed_versions_are_all_named_and_good_ones_are_unloaded(world: Any) -> None:
    async def scenario() -> None:
        config = (
            'backend: "python" version_policy { all {} } input [ { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] } ] '
            'output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] } ]'
        )
        folder = world.add("model", config, versions=(1, 2, 3))
        for version in (2, 3):
            (folder / str(version) / "model.py").write_text(f"fail boom{version}")
        server = await explicit(world)
        error = await world.refused_later(server.model_control.load("model"))
        assert error.message == (
            "load failed for model 'model': version 2 is at UNAVAILABLE state: Internal: boom2;"
            "version 3 is at UNAVAILABLE state: Internal: boom3;\n"
        )
        assert world.states(server) == [
            ("model", "1", "UNAVAILABLE", "unloaded"),
            ("model", "2", "UNAVAILABLE", "Internal: boom2"),
            ("model", "3", "UNAVAILABLE", "Internal: boom3"),
        ]
        await world.settle(lambda: all(backend.is_stopped for backend in world.backends.made))

    asyncio.run(scenario())


def test_versions_no_longer_selected_are_unloaded_after_the_new_ones_serve(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("model", versions=(1,))
        server = await explicit(world)
        await server.model_control.load("model")
        (folder / "2").mkdir()
        (folder / "2" / "model.py").write_text("")
        await server.model_control.load("model")
        assert server.inference.find("model", "").version == 2
        await world.settle(lambda: world.backends.made[0].is_stopped)
        assert world.states(server) == [("model", "1", "UNAVAILABLE", "unloaded"), ("model", "2", "READY", "")]

    asyncio.run(scenario())


def test_new_version_that_fails_leaves_the_old_version_in_service(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("model", versions=(1,))
        server = await explicit(world)
        await server.model_control.load("model")
        (folder / "2").mkdir()
        (folder / "2" / "model.py").write_text("fail boom")
        await world.refused_later(server.model_control.load("model"))
        assert world.states(server) == [("model", "1", "READY", ""), ("model", "2", "UNAVAILABLE", "Internal: boom")]
        assert server.inference.find("model", "").version == 1

    asyncio.run(scenario())


def test_change_of_instances_is_made_in_place(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("model")
        server = await explicit(world)
        await server.model_control.load("model")
        text = (folder / "config.pbtxt").read_text()
        (folder / "config.pbtxt").write_text(text + "instance_group [ { count: 3 kind: KIND_CPU } ]")
        await server.model_control.load("model")
        [backend] = world.backends.made
        assert len(backend.instances) == 3
        assert server.metadata.config("model", "").instance_groups[0].count == 3
        await server.model_control.load("model")
        assert len(world.backends.made) == 1

    asyncio.run(scenario())


def test_change_of_instances_together_with_a_file_is_a_reload(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("model")
        server = await explicit(world)
        await server.model_control.load("model")
        text = (folder / "config.pbtxt").read_text()
        (folder / "config.pbtxt").write_text(text + "instance_group [ { count: 3 kind: KIND_CPU } ]")
        touch(folder / "1" / "model.py")
        await server.model_control.load("model")
        assert len(world.backends.made) == 2

    asyncio.run(scenario())


def test_change_of_the_version_policy_loads_and_unloads_only_the_difference(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("model", versions=(1, 2, 3))
        server = await explicit(world)
        await server.model_control.load("model")
        text = (folder / "config.pbtxt").read_text()
        (folder / "config.pbtxt").write_text(text + "version_policy { specific { versions: [ 1, 3 ] } }")
        await server.model_control.load("model")
        assert [entry.version for entry in server.registry.index(True, server.registry.scan())] == ["1", "3"]
        assert sorted(backend.source.version for backend in world.backends.made) == [1, 3]

    asyncio.run(scenario())


def test_versions_whose_files_did_not_change_are_not_loaded_again(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("model")
        with (folder / "config.pbtxt").open("a") as config:
            config.write("version_policy { all { } }")
        server = await explicit(world)

        async def load() -> list[int]:
            before = len(world.backends.made)
            await server.model_control.load("model")
            return sorted(backend.source.version for backend in world.backends.made[before:])

        assert await load() == [1]
        shutil.copytree(folder / "1", folder / "2")
        assert await load() == [2]
        touch(folder / "1" / "model.py")
        assert await load() == [1]
        touch(folder / "config.pbtxt")
        assert await load() == []
        (folder / "labels.txt").write_text("all versions may read it")
        assert await load() == [1, 2]
        shutil.rmtree(folder / "2")
        assert await load() == []
        assert [entry.version for entry in server.registry.index(True, server.registry.scan())] == ["1"]

    asyncio.run(scenario())


def test_any_other_change_of_the_config_is_a_reload(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("model")
        server = await explicit(world)
        await server.model_control.load("model")
        text = (folder / "config.pbtxt").read_text()
        (folder / "config.pbtxt").write_text(text + 'parameters { key: "a" value { string_value: "b" } }')
        await server.model_control.load("model")
        assert len(world.backends.made) == 2

    asyncio.run(scenario())


def test_200_reloads_under_traffic_lose_no_request(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("model")
        server = await explicit(world)
        await server.model_control.load("model")
        answered = 0
        is_over = False

        async def client() -> None:
            nonlocal answered
            while not is_over:
                assert (await world.infer(server, "model")).error is None
                answered += 1
                await asyncio.sleep(0.0005)  # else the threads that read the folder hardly come to run

        clients = [asyncio.create_task(client()) for _ in range(4)]
        for _ in range(200):
            touch(folder / "1" / "model.py")
            await server.model_control.load("model")
        is_over = True
        await asyncio.gather(*clients)
        assert world.backends.count == 201
        assert answered > 200
        await world.settle(lambda: sum(not backend.is_stopped for backend in world.backends.made) == 1)

    asyncio.run(scenario())


def test_concurrent_loads_of_one_model_load_it_once(world: Any) -> None:
    async def scenario() -> None:
        world.add("model")
        server = await explicit(world)
        await asyncio.gather(*(server.model_control.load("model") for _ in range(8)))
        assert len(world.backends.made) == 1

    asyncio.run(scenario())


def test_load_goes_on_when_its_caller_goes_away(world: Any) -> None:
    async def scenario() -> None:
        world.add("model", code="wait")
        server = await explicit(world)
        load = asyncio.create_task(server.model_control.load("model"))
        await world.settle(lambda: world.backends.loading == 1)
        load.cancel()
        await asyncio.gather(load, return_exceptions=True)
        world.backends.gate.set()
        await world.settle(lambda: world.states(server) == [("model", "1", "READY", "")])

    asyncio.run(scenario())
