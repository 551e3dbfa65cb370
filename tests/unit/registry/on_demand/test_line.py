"""Loads that need what others have, at the same time: none keeps what another waits for while it waits itself."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest

from trireme.core.errors import ErrorKind
from trireme.registry.options import OnDemandOptions

CONFIG = """
backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""
SIZE = 'parameters { key: "trireme_memory_bytes" value { string_value: "%d" } }\n'


def add_sized(world: Any, *names: str, size: int = 40, code: str = "") -> None:
    for name in names:
        world.add(name, CONFIG + SIZE % size, code=code)


def add_pair(world: Any, name: str, first: str, second: str) -> None:
    """An ensemble of two models."""
    steps = ", ".join(
        f'{{ model_name: "{model}" model_version: -1 input_map {{ key: "IN" value: "{source}" }} '
        f'output_map {{ key: "OUT" value: "{target}" }} }}'
        for model, source, target in ((first, "IN", "between"), (second, "between", "OUT"))
    )
    text = CONFIG.replace('backend: "python"', 'platform: "ensemble"')
    world.add(name, f"{text} ensemble_scheduling {{ step [ {steps} ] }}")


async def started(world: Any, devices: str = "", **options: Any) -> Any:
    given = {"sweep_interval_s": 3600.0, "load_timeout_s": 5.0, "memory_budget_bytes": 0 if devices else 100, **options}
    server = world.server(control_mode="auto", on_demand=OnDemandOptions(**given))
    if devices:
        world.share_devices(devices, server.registry)
    report = await server.registry.start()
    assert report.is_ok, report
    server.mark_started()
    return server


def serving(server: Any) -> set[str]:
    return {model.name for model in server.registry.models.serving()}


def ask(world: Any, server: Any, *names: str) -> list[asyncio.Future[Any]]:
    """Asks for the models in this order."""
    answers = []
    for name in names:
        request, answer = world.request_for(name)
        server.inference.infer(request)
        answers.append(answer)
    return answers


async def all_answered(answers: list[asyncio.Future[Any]]) -> None:
    for answer in await asyncio.wait_for(asyncio.gather(*answers), 2):
        assert answer.error is None, answer.error.message


async def in_use(world: Any, server: Any, *names: str) -> list[asyncio.Future[Any]]:
    """Has each of the models work on a request until `end_use`."""
    answers = []
    for name in names:
        answers += ask(world, server, name)
        await world.settle(
            lambda name=name: any(one.held for made in world.backends.of(name) for one in made.instances)
        )
    return answers


def end_use(world: Any, *names: str) -> None:
    for name in names:
        backend = world.backends.of(name)[-1]
        backend.is_holding = False
        for instance in backend.instances:
            instance.release()


def test_ensembles_that_each_have_a_part_load_one_after_the_other(world: Any) -> None:
    async def run() -> None:
        add_sized(world, "b", "c")
        add_sized(world, "a", "d", code="hold")
        add_pair(world, "ab", "a", "b")
        add_pair(world, "cd", "c", "d")
        server = await started(world)
        answers = await in_use(world, server, "a", "d")
        answers += ask(world, server, "ab", "cd")
        await asyncio.sleep(0.1)
        assert serving(server) == {"a", "d"}
        for name in ("a", "d"):
            (world.repository / name / "1" / "model.py").write_text("")
        end_use(world, "a", "d")
        await all_answered(answers)

    asyncio.run(run())


def test_room_goes_to_the_first_that_waits_for_it(world: Any) -> None:
    async def run() -> None:
        add_sized(world, "busy", size=100, code="hold")
        add_sized(world, "large", size=90)
        add_sized(world, "small")
        server = await started(world)
        answers = await in_use(world, server, "busy")
        loads: list[str] = []

        def note(name: str, _answer: asyncio.Future[Any]) -> None:
            loads.append(name)

        (large,) = ask(world, server, "large")
        await asyncio.sleep(0.05)  # its files are read in a thread before it stands in the line
        (small,) = ask(world, server, "small")
        for name, answer in (("large", large), ("small", small)):
            answer.add_done_callback(functools.partial(note, name))
        await asyncio.sleep(0.05)
        end_use(world, "busy")
        await all_answered([*answers, large, small])
        assert loads == ["large", "small"]

    asyncio.run(run())


def test_one_that_must_wait_is_overtaken_by_one_that_need_not(world: Any) -> None:
    """The busy model may have called the one behind, and wait for it."""

    async def run() -> None:
        add_sized(world, "calling", code="hold")
        add_sized(world, "idle", "called")
        add_sized(world, "large", size=90)
        server = await started(world)
        await all_answered(ask(world, server, "idle"))
        answers = await in_use(world, server, "calling")
        large, called = ask(world, server, "large", "called")
        await all_answered([called])
        assert not large.done()
        assert serving(server) == {"calling", "called"}
        end_use(world, "calling")
        await all_answered([*answers, large])

    asyncio.run(run())


def test_who_cannot_begin_yet_evicts_nobody(world: Any) -> None:
    async def run() -> None:
        add_sized(world, "busy", code="hold")
        add_sized(world, "idle")
        add_sized(world, "large", size=90)
        server = await started(world, load_timeout_s=0.2, backoff_s=0.0)
        await all_answered(ask(world, server, "idle"))
        answers = await in_use(world, server, "busy")
        error = (await asyncio.wait_for(world.infer(server, "large"), 2)).error
        assert error.kind is ErrorKind.UNAVAILABLE
        assert serving(server) == {"busy", "idle"}
        end_use(world, "busy")
        await all_answered(answers)

    asyncio.run(run())


def test_load_that_is_refused_or_whose_time_is_over_leaves_the_line(world: Any) -> None:
    async def run() -> None:
        add_sized(world, "busy", code="hold")
        add_sized(world, "large", size=90)
        add_sized(world, "huge", size=500)
        add_sized(world, "medium", size=70)
        server = await started(world, load_timeout_s=0.3)
        answers = await in_use(world, server, "busy")
        huge, large = ask(world, server, "huge", "large")
        assert "declares 500 bytes" in (await asyncio.wait_for(huge, 2)).error.message
        await asyncio.sleep(0.2)
        medium = ask(world, server, "medium")
        assert (await asyncio.wait_for(large, 2)).error is not None
        end_use(world, "busy")
        await all_answered([*answers, *medium])
        assert serving(server) == {"medium"}

    asyncio.run(run())


def test_load_that_is_interrupted_leaves_the_line(world: Any) -> None:
    async def run() -> None:
        add_sized(world, "busy", code="hold")
        add_sized(world, "large", size=90)
        add_sized(world, "medium", size=70)
        server = await started(world)
        answers = await in_use(world, server, "busy")
        before = asyncio.all_tasks()
        large = ask(world, server, "large")
        await asyncio.sleep(0.05)
        (load,) = (task for task in asyncio.all_tasks() - before if _name(task).startswith("_load"))
        medium = ask(world, server, "medium")
        await asyncio.sleep(0.05)
        load.cancel()
        assert "interrupted" in (await asyncio.wait_for(large[0], 2)).error.message
        end_use(world, "busy")
        await all_answered([*answers, *medium])

    asyncio.run(run())


def _name(task: asyncio.Task[Any]) -> str:
    """Of its function; compiled ones leave it to the type, with the class and more behind it."""
    coroutine = task.get_coro()
    return str(getattr(coroutine, "__name__", type(coroutine).__name__))


def test_explicit_load_stands_in_the_same_line(world: Any) -> None:
    async def run() -> None:
        add_sized(world, "b", "c")
        add_sized(world, "a", "d", code="hold")
        add_pair(world, "ab", "a", "b")
        add_pair(world, "cd", "c", "d")
        server = await started(world)
        answers = await in_use(world, server, "a", "d")
        loading = asyncio.ensure_future(server.model_control.load("ab"))
        await asyncio.sleep(0.05)
        answers += ask(world, server, "cd")
        await asyncio.sleep(0.05)
        for name in ("a", "d"):
            (world.repository / name / "1" / "model.py").write_text("")
        end_use(world, "a", "d")
        await all_answered(answers)
        await asyncio.wait_for(loading, 2)

    asyncio.run(run())


@pytest.mark.parametrize("have", [("a", "d"), ()])
def test_ensembles_share_devices_one_after_the_other(world: Any, have: tuple[str, ...]) -> None:
    async def run() -> None:
        for name in ("a", "b", "c", "d"):
            world.add(name)
        add_pair(world, "ab", "a", "b")
        add_pair(world, "cd", "c", "d")
        server = await started(world, "hpu:2")
        for name in have:
            await all_answered(ask(world, server, name))
        await all_answered(ask(world, server, "ab", "cd"))
        await all_answered(ask(world, server, "cd", "ab"))
        await all_answered(ask(world, server, "ab", "cd", "a", "b", "c", "d"))

    asyncio.run(run())


def test_ensemble_that_never_gets_its_devices_is_told_so_in_time(world: Any) -> None:
    async def run() -> None:
        world.add("busy", code="hold")
        for name in ("a", "b", "c", "d"):
            world.add(name)
        add_pair(world, "ab", "a", "b")
        add_pair(world, "cd", "c", "d")
        server = await started(world, "hpu:2", load_timeout_s=0.3, backoff_s=0.0)
        await in_use(world, server, "busy")
        for answer in await asyncio.wait_for(asyncio.gather(*ask(world, server, "ab", "cd")), 2):
            assert answer.error.kind is ErrorKind.UNAVAILABLE
        end_use(world, "busy")
        async with asyncio.timeout(30):  # each load has 0.3 s alone, which a busy machine may not do it in at once
            answers = await asyncio.gather(*ask(world, server, "ab", "cd"))
            while any(answer.error for answer in answers):
                answers = await asyncio.gather(*ask(world, server, "ab", "cd"))

    asyncio.run(run())
