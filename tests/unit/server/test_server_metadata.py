"""What the server tells about itself, its models and their numbers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from trireme.core.errors import ErrorKind

CONFIG = """
backend: "python"
max_batch_size: 8
version_policy { all {} }
input [ { name: "IN" data_type: TYPE_STRING dims: [ 2, -1 ] optional: true } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 2, 2 ] reshape { shape: [ 4 ] } } ]
metric_tags { key: "team" value: "blue" }
"""


def test_server_metadata(world: Any) -> None:
    server = asyncio.run(world.started())
    metadata = server.metadata.server()
    assert metadata.name == "triton"
    assert metadata.extensions[:3] == ("classification", "sequence", "model_repository")
    assert len(metadata.extensions) == 13


def test_model_metadata_has_the_batch_dimension_and_the_dims_of_the_config(world: Any) -> None:
    world.add("model", CONFIG, versions=(1, 10, 2))
    server = asyncio.run(world.started())
    metadata = server.metadata.model("model", "")
    assert metadata.versions == ["1", "2", "10"]
    assert metadata.platform == "python"
    assert [(tensor.name, tensor.datatype, tensor.shape) for tensor in metadata.inputs] == [
        ("IN", "BYTES", (-1, 2, -1))
    ]
    assert [(tensor.name, tensor.datatype, tensor.shape) for tensor in metadata.outputs] == [
        ("OUT", "FP32", (-1, 2, 2))
    ]
    assert server.metadata.model("model", "2").versions == ["2"]


def test_metadata_of_an_ensemble_names_its_platform(world: Any) -> None:
    world.add("part")
    world.add_ensemble("whole", "part")
    server = asyncio.run(world.started())
    assert server.metadata.model("whole", "").platform == "ensemble"
    assert server.metadata.model("whole", "").inputs[0].shape == (4,)


def test_config_as_value_and_as_json(world: Any) -> None:
    world.add("model", CONFIG)
    server = asyncio.run(world.started())
    assert server.metadata.config("model", "").max_batch_size == 8
    config = json.loads(server.metadata.config_json("model", "1"))
    assert config["name"] == "model"
    assert config["instance_group"][0]["count"] == 1


@pytest.mark.parametrize("ask", ["model", "config", "config_json"])
def test_unknown_models_are_refused(world: Any, ask: str) -> None:
    server = asyncio.run(world.started())
    error = world.refused(lambda: getattr(server.metadata, ask)("zz", ""))
    assert (error.kind, error.message) == (ErrorKind.NOT_FOUND, "Request for unknown model: 'zz' is not found")


def test_statistics_of_all_of_one_and_of_a_version(world: Any) -> None:
    async def scenario() -> None:
        world.add("a", versions=(1,))
        world.add("b", CONFIG.replace("TYPE_STRING dims: [ 2, -1 ]", "TYPE_FP32 dims: [ 4 ]"), versions=(1, 2))
        world.add("bad", code="fail boom")
        server = await world.started()
        await world.infer(server, "a")
        names = [(stats.name, stats.version) for stats in server.statistics.models("", "")]
        assert names == [("a", "1"), ("b", "1"), ("b", "2")]
        assert [stats.version for stats in server.statistics.models("b", "")] == ["1", "2"]
        [stats] = server.statistics.models("a", "1")
        assert stats.inference_count == 1
        assert stats.success.count == 1
        for name, version, text in (
            ("zz", "", "requested model 'zz' is not available"),
            ("bad", "", "requested model 'bad' is not available"),
            ("a", "7", "requested model version is not available for model 'a'"),
        ):
            error = world.refused(lambda name=name, version=version: server.statistics.models(name, version))
            assert (error.kind, error.message) == (ErrorKind.INVALID_ARGUMENT, text)

    asyncio.run(scenario())


def test_metrics_appear_at_load_and_go_at_unload(world: Any) -> None:
    async def scenario() -> None:
        world.add("model", CONFIG)
        server = await world.started(control_mode="explicit", startup_models=("model",))
        page = server.statistics.metrics_page().decode()
        assert 'nv_inference_count{_team="blue",model="model",version="1"} 0' in page
        await server.model_control.unload("model")
        assert 'model="model"' not in server.statistics.metrics_page().decode()

    asyncio.run(scenario())
