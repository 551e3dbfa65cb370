"""Which model a name and a version mean, and what is said where there is none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trireme.core.errors import ErrorKind
from trireme.registry.served_models import parse_version

TWO_VERSIONS = "version_policy { all {} }"


def start(world: Any, **options: Any) -> Any:
    return asyncio.run(world.started(**options))


def config_with(world: Any, extra: str) -> str:
    return (
        'backend: "python" input [ { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] } ] '
        'output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] } ] ' + extra
    )


@pytest.mark.parametrize(
    ("name", "version", "kind", "message"),
    [
        ("zz", "", ErrorKind.NOT_FOUND, "Request for unknown model: 'zz' is not found"),
        ("zz", "1", ErrorKind.NOT_FOUND, "Request for unknown model: 'zz' is not found"),
        ("good", "7", ErrorKind.NOT_FOUND, "Request for unknown model: 'good' version 7 is not found"),
        ("good", "0", ErrorKind.NOT_FOUND, "Request for unknown model: 'good' version 0 is not found"),
        ("bad", "1", ErrorKind.UNAVAILABLE, "Request for unknown model: 'bad' version 1 is not at ready state"),
        ("bad", "", ErrorKind.NOT_FOUND, "Request for unknown model: 'bad' has no available versions"),
        (
            "good",
            "abc",
            ErrorKind.INVALID_ARGUMENT,
            "failed to get model version from specified version string 'abc' (details: stol), "
            "version should be an integral value > 0",
        ),
        (
            "good",
            "99999999999999999999",
            ErrorKind.INVALID_ARGUMENT,
            "failed to get model version from specified version string '99999999999999999999' (details: stol), "
            "version should be an integral value > 0",
        ),
        (
            "good",
            "-5",
            ErrorKind.INVALID_ARGUMENT,
            "invalid model version specified '-5' , version should be an integral value > 0",
        ),
    ],
)
def test_unknown_model_texts(world: Any, name: str, version: str, kind: ErrorKind, message: str) -> None:
    world.add("good")
    world.add("bad", code="fail boom")
    server = start(world)
    error = world.refused(lambda: server.inference.find(name, version))
    assert (error.kind, error.message) == (kind, message)


@pytest.mark.parametrize(("text", "number"), [("", None), ("1", 1), ("01", 1), (" 12", 12), ("+3", 3), ("1.5", 1)])
def test_version_strings_are_read_up_to_their_first_other_character(text: str, number: int | None) -> None:
    assert parse_version(text) == number


def test_no_version_means_the_highest_number(world: Any) -> None:
    world.add("model", config_with(world, TWO_VERSIONS), versions=(2, 10, 9))
    server = start(world)
    assert server.inference.find("model", "").version == 10
    assert server.inference.find("model", "2").version == 2
    assert server.inference.find("model", "09").version == 9


def test_latest_is_one_version_by_default(world: Any) -> None:
    world.add("model", versions=(1, 2, 3))
    server = start(world)
    assert world.states(server) == [("model", "3", "READY", "")]


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        ("latest { num_versions: 2 }", ["2", "3"]),
        ("all {}", ["1", "2", "3"]),
        ("specific { versions: [ 1, 3 ] }", ["1", "3"]),
        ("specific { versions: [ 1, 8 ] }", ["1"]),
    ],
)
def test_version_policies(world: Any, policy: str, served: list[str]) -> None:
    world.add("model", config_with(world, f"version_policy {{ {policy} }}"), versions=(1, 2, 3))
    server = start(world)
    assert [entry.version for entry in server.registry.index(True, server.registry.scan())] == served


def test_policy_that_selects_nothing_is_a_failure(world: Any) -> None:
    async def scenario() -> None:
        world.add("model", config_with(world, "version_policy { specific { versions: [ 8 ] } }"))
        server = await world.started(control_mode="explicit")
        error = await world.refused_later(server.model_control.load("model"))
        assert error.message == (
            "load failed for model 'model': "
            "at least one version must be available under the version policy of model 'model'\n"
        )
        assert error.kind is ErrorKind.INVALID_ARGUMENT

    asyncio.run(scenario())


def test_namespacing_serves_the_same_name_twice_but_not_by_name_alone(world: Any) -> None:
    other = world.root / "other"
    world.add("twice")
    world.add("twice", repository=other)
    world.add("once", repository=other)
    server = start(world, repositories=(world.repository, other), has_namespacing=True)
    assert server.inference.find("once", "").name == "once"
    error = world.refused(lambda: server.inference.find("twice", ""))
    assert error.kind is ErrorKind.INVALID_ARGUMENT
    assert error.message == (
        "There are 2 identifiers of model 'twice' in global map, model namespace must be provided to resolve ambiguity."
    )
    error = world.refused(lambda: server.inference.find("zz", ""))
    assert error.kind is ErrorKind.INVALID_ARGUMENT
    assert error.message == "Request for unknown model: 'zz' is not found"
    assert f'namespace="{other}"' in server.statistics.metrics_page().decode()


def test_namespaced_ensemble_prefers_the_model_beside_it(world: Any) -> None:
    async def scenario() -> None:
        other = world.root / "other"
        world.add("part")
        world.add("part", repository=other)
        world.add_ensemble("whole", "part")
        server = await world.started(repositories=(other, world.repository), has_namespacing=True)
        response = await world.infer(server, "whole")
        assert response.error is None
        beside = [b for b in world.backends.of("part") if b.source.model_dir.parent == world.repository]
        assert beside[0].instances[0].batches == [[1]]

    asyncio.run(scenario())


def test_ambiguous_name_becomes_clear_when_one_of_the_two_goes(world: Any) -> None:
    async def scenario() -> None:
        other = world.root / "other"
        world.add("twice")
        gone = world.add("twice", repository=other)
        server = await world.started(
            repositories=(world.repository, other), has_namespacing=True, control_mode="poll", poll_seconds=0
        )
        world.refused(lambda: server.inference.find("twice", ""))
        record = next(r for r in server.registry.models.named("twice") if r.id.namespace == str(other))
        await server.registry._loader.remove(record.id)
        assert server.inference.find("twice", "").id.namespace == str(world.repository)
        assert gone.exists()

    asyncio.run(scenario())
