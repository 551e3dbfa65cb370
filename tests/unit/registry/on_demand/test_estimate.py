"""How large a model is guessed to be before it has ever been loaded, and what the budget makes of it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from trireme.observe.logs import LogSettings
from trireme.registry.on_demand.config import needs_of
from trireme.registry.options import OnDemandOptions, RegistryOptions
from trireme.registry.registry import ModelRegistry
from trireme.registry.repository.repositories import Repositories
from trireme.server.server import InferenceServer

CONFIG = """
backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""


def parameter(key: str, value: object) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def write(path: Path, size: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    return path


def expected(world: Any, name: str) -> dict[str, int]:
    needs = needs_of(RegistryOptions((world.repository,), "auto"), Repositories((world.repository,)), name)
    return dict(needs.estimated_bytes)


async def started(world: Any, sizes: dict[str, int] | None = None, **options: Any) -> InferenceServer:
    def resident_bytes(backend: Any) -> int:
        return (sizes or {}).get(backend.source.name, 0) if backend.is_started and not backend.is_stopped else 0

    on_demand = OnDemandOptions(**{"sweep_interval_s": 60.0, "load_timeout_s": 5.0, **options})
    registry_options = RegistryOptions((world.repository,), "auto", on_demand=on_demand)
    registry = ModelRegistry(registry_options, world.backends, world.metrics, resident_bytes)
    server = InferenceServer(registry, world.metrics, LogSettings())
    assert (await registry.start()).is_ok
    server.mark_started()
    return server


def serving(server: InferenceServer) -> set[str]:
    return {model.name for model in server.registry.models.serving()}


def test_files_of_the_versions_to_load_count_once_for_each_instance(world: Any) -> None:
    folder = world.add("model", CONFIG + "instance_group [ { count: 3 kind: KIND_CPU } ]", versions=(1, 2))
    write(folder / "1" / "weights.pt", 1000)
    write(folder / "2" / "deep" / "er" / "weights.pt", 10)
    write(folder / "2" / "__pycache__" / "model.pyc", 7000)
    assert expected(world, "model") == {"model": 30}


def test_only_one_form_of_the_weights_counts(world: Any) -> None:
    folder = world.add("model") / "1"
    write(folder / "model.safetensors", 100)
    write(folder / "pytorch_model.bin", 100)
    write(folder / "tf_model.h5", 100)
    assert expected(world, "model") == {"model": 100}


def test_weights_that_the_configuration_names_count(
    world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "weights" / "model.safetensors", 200)
    write(tmp_path / "weights" / "README.md", 3)
    world.add("by_folder", CONFIG + parameter("model", tmp_path / "weights"))
    world.add("by_file", CONFIG + parameter("checkpoint", tmp_path / "weights" / "model.safetensors"))
    inside = world.add("inside", CONFIG + parameter("weights", "weights.pt"))
    write(inside / "1" / "weights.pt", 50)
    beside = world.add("beside", CONFIG + parameter("model", "$$TRITON_MODEL_DIRECTORY/shared"))
    write(beside / "shared" / "pytorch_model.bin", 70)
    world.add("environment", CONFIG + parameter("EXECUTION_ENV_PATH", write(tmp_path / "env.tar.gz", 9000)))
    world.add("everything", CONFIG + parameter("root", "/"))
    assert expected(world, "by_folder") == {"by_folder": 200}
    assert expected(world, "by_file") == {"by_file": 200}
    assert expected(world, "inside") == {"inside": 50}
    assert expected(world, "beside") == {"beside": 70}
    assert expected(world, "environment") == {"environment": 0}
    assert expected(world, "everything") == {"everything": 0}
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    blob = write(tmp_path / "hub" / "models--some--name" / "blobs" / "abc", 300)
    snapshot = tmp_path / "hub" / "models--some--name" / "snapshots" / "main"
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").symlink_to(blob)
    world.add("from_hub", CONFIG + parameter("model", "some/name"))
    assert expected(world, "from_hub") == {"from_hub": 300}


def test_room_is_made_before_the_first_load(world: Any) -> None:
    async def run() -> None:
        for name in ("a", "b"):
            write(world.add(name) / "1" / "weights.pt", 60)
        server = await started(world, {"a": 60, "b": 60}, memory_budget_bytes=100)
        await world.infer(server, "a")
        waiting = asyncio.ensure_future(world.infer(server, "b"))
        await world.settle(lambda: bool(world.backends.of("b")))
        assert world.backends.of("a")[0].is_stopped
        assert (await asyncio.wait_for(waiting, 2)).error is None
        assert serving(server) == {"b"}

    asyncio.run(run())


def test_models_that_together_exceed_the_budget_do_not_load_at_once(world: Any) -> None:
    async def run() -> None:
        for name in ("a", "b", "c"):
            write(world.add(name) / "1" / "weights.pt", 60)
        server = await started(world, {"a": 60, "b": 60, "c": 60}, memory_budget_bytes=100)
        answers = await asyncio.wait_for(asyncio.gather(*(world.infer(server, name) for name in ("a", "b", "c"))), 5)
        assert [answer.error for answer in answers] == [None, None, None]
        assert world.backends.most_loading == 1

    asyncio.run(run())


def test_what_was_measured_is_worth_more_than_a_guess(world: Any) -> None:
    async def run() -> None:
        for name in ("a", "b"):
            write(world.add(name) / "1" / "weights.pt", 60)
        server = await started(world, {"a": 10, "b": 10}, memory_budget_bytes=65)
        await world.infer(server, "a")
        await world.infer(server, "b")
        assert serving(server) == {"b"}
        await world.infer(server, "a")
        assert serving(server) == {"a", "b"}

    asyncio.run(run())


def test_model_that_is_guessed_to_exceed_the_budget_is_served_alone(
    world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        write(world.add("large") / "1" / "weights.pt", 500)
        write(world.add("small") / "1" / "weights.pt", 5)
        server = await started(world, memory_budget_bytes=100)
        await world.infer(server, "small")
        assert (await asyncio.wait_for(world.infer(server, "large"), 2)).error is None
        assert serving(server) == {"large"}

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert "model 'large' is expected to need 500 bytes" in caplog.text
    assert "trireme_memory_bytes" in caplog.text


def test_files_of_a_load_request_tell_its_size(world: Any) -> None:
    async def run() -> None:
        write(world.add("old") / "1" / "weights.pt", 60)
        world.add("new")
        server = await started(world, {"old": 60}, memory_budget_bytes=100)
        await world.infer(server, "old")
        files = {"file:1/model.py": b"", "file:1/weights.pt": bytes(60)}
        await server.model_control.load("new", world.override_json(), files)
        assert serving(server) == {"new"}

    asyncio.run(run())
