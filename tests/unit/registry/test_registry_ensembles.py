"""Ensembles come after their composing models, go before them, and say what they miss."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from trireme.core.errors import ErrorKind


def explicit(world: Any, **options: Any) -> Any:
    return world.started(control_mode="explicit", **options)


async def load_error(world: Any, server: Any, name: str) -> str:
    error = await world.refused_later(server.model_control.load(name))
    assert error.kind is ErrorKind.INVALID_ARGUMENT
    return str(error.message)


def ready(server: Any) -> list[str]:
    return [entry.name for entry in server.registry.index(True, server.registry.scan())]


def test_start_loads_composing_models_first(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        world.add_ensemble("a_whole", "z_part")
        world.add("z_part")
        report = await world.server().registry.start()
        assert report.is_ok

    caplog.set_level(logging.INFO, "trireme")
    asyncio.run(scenario())
    loaded = [message for message in caplog.messages if message.startswith("successfully loaded")]
    assert loaded == ["successfully loaded 'z_part'", "successfully loaded 'a_whole'"]


def test_ensemble_runs_its_steps(world: Any) -> None:
    async def scenario() -> None:
        world.add_ensemble("outer", "inner")
        world.add_ensemble("inner", "part")
        world.add("part")
        server = await world.started()
        response = await world.infer(server, "outer")
        assert response.error is None
        assert response.outputs[0].name == "OUT"
        assert world.backends.of("part")[0].instances[0].batches == [[1]]

    asyncio.run(scenario())


def test_ensemble_without_a_version_folder_is_version_one(world: Any) -> None:
    async def scenario() -> None:
        world.add_ensemble("whole", "part", has_folder=False)
        world.add("part")
        server = await world.started()
        assert server.inference.find("whole", "1").version == 1

    asyncio.run(scenario())


def test_loading_an_ensemble_loads_its_parts(world: Any) -> None:
    async def scenario() -> None:
        world.add_ensemble("outer", "inner")
        world.add_ensemble("inner", "part")
        world.add("part")
        world.add("bystander")
        server = await explicit(world)
        await server.model_control.load("outer")
        assert ready(server) == ["inner", "outer", "part"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("part_code", "step_version", "text"),
    [
        (None, -1, "ensemble whole contains models that are not available or ambiguous: part"),
        (
            "fail boom",
            -1,
            "ensemble 'whole' depends on 'part' which has no loaded version. Model 'part' loading failed with error: "
            "version 1 is at UNAVAILABLE state: Internal: boom;",
        ),
        ("", 9, "ensemble 'whole' depends on 'part' whose required version 9 is not loaded."),
    ],
)
def test_missing_parts(world: Any, part_code: str | None, step_version: int, text: str) -> None:
    async def scenario() -> None:
        world.add_ensemble("whole", "part", step_version)
        if part_code is not None:
            world.add("part", code=part_code)
        server = await explicit(world)
        assert await load_error(world, server, "whole") == f"load failed for model 'whole': {text}\n"
        assert ("whole", "", "", "") in world.states(server)
        assert not await server.health.is_ready()

    asyncio.run(scenario())


def test_circles_are_named(world: Any) -> None:
    async def scenario() -> None:
        world.add_ensemble("c1", "c2")
        world.add_ensemble("c2", "c1")
        world.add_ensemble("above", "c1")
        world.add("part")
        server = await explicit(world)
        circle = "circular dependency between ensembles: c1 -> ... -> c2 -> c1"
        assert await load_error(world, server, "c1") == f"load failed for model 'c1': {circle}\n"
        assert await load_error(world, server, "above") == (
            "load failed for model 'above': ensemble 'above' depends on 'c1' which is not valid. "
            f"Model 'c1' failed with error: {circle}\n"
        )
        await server.model_control.load("part")

    asyncio.run(scenario())


def test_circle_at_the_start_fails_only_itself(world: Any) -> None:
    async def scenario() -> None:
        world.add_ensemble("c1", "c2")
        world.add_ensemble("c2", "c1")
        world.add("part")
        report = await world.server().registry.start()
        not_found = "Not loaded: No model version was found"
        assert report.rows == (("c1", "-", not_found), ("c2", "-", not_found), ("part", "1", "READY"))
        assert tuple(failure.name for failure in report.failures) == ("c1", "c2")

    asyncio.run(scenario())


def test_unloading_a_part_takes_the_ensembles_out_and_loading_it_brings_them_back(world: Any) -> None:
    async def scenario() -> None:
        world.add_ensemble("outer", "inner")
        world.add_ensemble("inner", "part")
        world.add("part")
        server = await explicit(world)
        await server.model_control.load("outer")
        await server.model_control.unload("part")
        assert ready(server) == []
        await world.settle(lambda: not server.registry.models.draining)
        assert world.states(server) == [
            ("inner", "1", "UNAVAILABLE", "unloaded"),
            ("outer", "1", "UNAVAILABLE", "unloaded"),
            ("part", "1", "UNAVAILABLE", "unloaded"),
        ]
        await server.model_control.load("part")
        assert ready(server) == ["inner", "outer", "part"]
        assert (await world.infer(server, "outer")).error is None

    asyncio.run(scenario())


def test_running_ensemble_request_finishes_although_its_parts_are_unloaded(world: Any) -> None:
    async def scenario() -> None:
        world.add_chain("whole", "first", "second")
        world.add("first", code="hold")
        world.add("second")
        server = await explicit(world)
        await server.model_control.load("whole")
        request, answer = world.request_for("whole")
        server.inference.infer(request)
        await server.model_control.unload("second")
        assert ready(server) == ["first"]
        world.backends.of("first")[0].instances[0].release()
        assert (await answer).error is None
        await world.settle(lambda: world.backends.of("second")[0].is_stopped)

    asyncio.run(scenario())


def test_unload_dependents_takes_along_what_was_loaded_for_the_ensemble_only(world: Any) -> None:
    async def scenario() -> None:
        world.add_ensemble("outer", "inner")
        world.add_ensemble("inner", "part")
        world.add_ensemble("other", "shared")
        world.add("part")
        world.add("shared")
        server = await explicit(world)
        await server.model_control.load("part")
        await server.model_control.load("outer")
        await server.model_control.unload("outer", unload_dependents=True)
        assert ready(server) == ["part"]
        await server.model_control.load("other")
        await server.model_control.unload("other", unload_dependents=True)
        assert ready(server) == ["part"]

    asyncio.run(scenario())


def test_without_unload_dependents_the_parts_stay(world: Any) -> None:
    async def scenario() -> None:
        world.add_ensemble("whole", "part")
        world.add("part")
        server = await explicit(world)
        await server.model_control.load("whole")
        await server.model_control.unload("whole")
        assert ready(server) == ["part"]

    asyncio.run(scenario())


def test_part_that_another_ensemble_needs_stays(world: Any) -> None:
    async def scenario() -> None:
        world.add_ensemble("one", "part")
        world.add_ensemble("two", "part")
        world.add("part")
        server = await explicit(world)
        await server.model_control.load("one")
        await server.model_control.load("two")
        await server.model_control.unload("one", unload_dependents=True)
        assert ready(server) == ["part", "two"]

    asyncio.run(scenario())


def test_ensemble_that_failed_for_a_part_comes_when_the_part_comes(world: Any) -> None:
    async def scenario() -> None:
        world.add_ensemble("whole", "part")
        folder = world.add("part", code="fail boom")
        server = await explicit(world)
        await load_error(world, server, "whole")
        (folder / "1" / "model.py").write_text("")
        await server.model_control.load("part")
        assert ready(server) == ["part", "whole"]

    asyncio.run(scenario())


def test_reloaded_part_that_no_longer_fits_makes_the_ensemble_unavailable(world: Any) -> None:
    async def scenario() -> None:
        world.add_ensemble("whole", "part")
        folder = world.add("part")
        server = await explicit(world)
        await server.model_control.load("whole")
        config = folder / "config.pbtxt"
        config.write_text(config.read_text().replace("TYPE_FP32", "TYPE_INT32"))
        await server.model_control.load("part")
        assert ready(server) == ["part"]

    asyncio.run(scenario())


def test_broken_ensemble_does_not_keep_its_old_self(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add_ensemble("whole", "part")
        world.add("part")
        server = await explicit(world)
        await server.model_control.load("whole")
        config = folder / "config.pbtxt"
        config.write_text(config.read_text().replace('model_name: "part"', 'model_name: "gone"'))
        text = "ensemble whole contains models that are not available or ambiguous: gone"
        assert await load_error(world, server, "whole") == f"load failed for model 'whole': {text}\n"
        assert ready(server) == ["part"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            ('input_map { key: "IN"', 'input_map { key: "XX"'),
            "in ensemble whole, ensemble tensor IN is mapping to non-existing input XX in model part",
        ),
        (
            ('output_map { key: "OUT"', 'output_map { key: "XX"'),
            "in ensemble whole, ensemble tensor OUT is mapped from non-existing output XX in model part",
        ),
        (
            ("dims: [ 4 ]", "dims: [ 5 ]"),
            "in ensemble whole, ensemble tensor IN: inconsistent shape: [5] is inferred from model whole "
            "while [4] is inferred from model part",
        ),
        (
            ("TYPE_FP32", "TYPE_INT32"),
            "in ensemble whole, ensemble tensor IN: inconsistent data type: TYPE_INT32 is inferred from model whole "
            "while TYPE_FP32 is inferred from model part",
        ),
        (
            ('platform: "ensemble"', 'platform: "ensemble" max_batch_size: 8'),
            "ensemble whole allows maximum batch size 8, but it contains model part which only allows maximum "
            "batch size to be 4",
        ),
    ],
)
def test_ensemble_that_does_not_fit_its_parts(world: Any, change: tuple[str, str], text: str) -> None:
    async def scenario() -> None:
        folder = world.add_ensemble("whole", "part")
        part = world.add("part")
        config = folder / "config.pbtxt"
        config.write_text(config.read_text().replace(*change))
        if "max_batch_size" in change[1]:
            (part / "config.pbtxt").write_text((part / "config.pbtxt").read_text() + "max_batch_size: 4")
        server = await explicit(world)
        message = await load_error(world, server, "whole")
        assert text in message

    asyncio.run(scenario())


def test_ensemble_is_decoupled_as_long_as_its_part_is(world: Any) -> None:
    async def scenario() -> None:
        world.add_ensemble("whole", "part")
        folder = world.add("part")
        server = await explicit(world)
        await server.model_control.load("whole")
        assert not server.metadata.config("whole", "").is_decoupled
        config = folder / "config.pbtxt"
        config.write_text(config.read_text() + "model_transaction_policy { decoupled: true }")
        await server.model_control.load("part")
        assert server.metadata.config("whole", "").is_decoupled

    asyncio.run(scenario())


def test_input_of_a_part_that_nothing_feeds_is_an_error_unless_optional(world: Any) -> None:
    async def scenario() -> None:
        world.add_ensemble("whole", "part")
        folder = world.add("part")
        config = folder / "config.pbtxt"
        second = 'input [ { name: "B" data_type: TYPE_FP32 dims: [ 4 ] } ]'
        config.write_text(config.read_text() + second)
        server = await explicit(world)
        text = "in ensemble whole, input B in model part is not mapped to any ensemble tensors"
        assert text in await load_error(world, server, "whole")
        config.write_text(config.read_text().replace(second, second.replace("] } ]", "] optional: true } ]")))
        await server.model_control.load("whole")
        assert ready(server) == ["part", "whole"]

    asyncio.run(scenario())


def test_ensemble_takes_labels_from_the_part_that_makes_the_output(world: Any) -> None:
    async def scenario() -> None:
        world.add_ensemble("whole", "part")
        folder = world.add("part")
        config = folder / "config.pbtxt"
        config.write_text(config.read_text().replace('name: "OUT"', 'name: "OUT" label_filename: "labels.txt"'))
        (folder / "labels.txt").write_text("cat\ndog\n")
        server = await explicit(world)
        await server.model_control.load("whole")
        assert server.inference.find("part", "").labels("OUT") == ["cat", "dog"]
        assert server.inference.find("whole", "").labels("OUT") == ["cat", "dog"]
        assert server.inference.find("whole", "").labels("IN") == ()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("label_file", "text"),
    [
        ("../labels.txt", "Unsupported: label file '../labels.txt' of output 'OUT' must stay within model directory"),
        ("nowhere.txt", "Invalid argument: failed to read label file"),
        ("a\\000b", "label file of output 'OUT' must not contain a null character"),
        ("loop.txt", "loop.txt': Too many levels of symbolic links"),
    ],
)
def test_label_file_must_be_in_the_model_folder(world: Any, label_file: str, text: str) -> None:
    async def scenario() -> None:
        folder = world.add("part")
        (folder / "loop.txt").symlink_to("loop.txt")
        config = folder / "config.pbtxt"
        config.write_text(config.read_text().replace('name: "OUT"', f'name: "OUT" label_filename: "{label_file}"'))
        server = await explicit(world)
        assert text in await load_error(world, server, "part")

    asyncio.run(scenario())
