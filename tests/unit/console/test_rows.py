"""Rows of the table of models: where a model runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trireme.console.model_detail import ModelDetails
from trireme.console.probes import DeviceState, Probes
from trireme.console.rows import spoken_devices
from trireme.console.sampler import Sampler
from trireme.observe.metrics import MetricsRegistry
from trireme.observe.metrics_options import MetricsOptions

CONFIG = """
backend: "python"
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 4 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 4 ] } ]
instance_group [ { kind: KIND_CPU } ]
"""
GPU = DeviceState("cuda:1", "a GPU", "cuda", True, 0.5, 2**30, 2**34)


def sampler(world: Any, devices: tuple[str, ...]) -> Sampler:
    world.add("model", CONFIG)
    server = asyncio.run(world.started())
    metrics = MetricsRegistry(MetricsOptions())
    probes = Probes(lambda _: 0, lambda _: 0.0, lambda: [GPU], list, devices_in_use=lambda _: devices)
    return Sampler(server, metrics, probes)


@pytest.mark.parametrize(("devices", "shown"), [((), "cpu"), (("cpu",), "cpu"), (("cuda:1",), "gpu 1")])
def test_device_is_the_one_that_the_model_says_it_took(world: Any, devices: tuple[str, ...], shown: str) -> None:
    (row,) = sampler(world, devices).rows().values()
    assert row["device"] == shown


def test_page_of_a_model_shows_the_device_that_it_took(world: Any) -> None:
    found = sampler(world, ("cuda:1",))
    found.devices.add(1.0, {"cuda:1": [0.5, 1024.0]})
    details = ModelDetails(found._server, found._metrics, found)
    assert list(details.describe("model", "")["devices"]) == ["cuda:1"]


def shown(server: Any) -> tuple[str, str, str]:
    """State and reason in the table, and the reason on the model's page."""
    found = Sampler(server, MetricsRegistry(MetricsOptions()), Probes(lambda _: 0, lambda _: 0.0, list, list))
    found.scan = server.registry.scan()
    (row,) = found.rows().values()
    page = ModelDetails(server, MetricsRegistry(MetricsOptions()), found).describe("model", "")
    return row["state"], row["reason"], page["reason"]


MISTAKE = "1:1: ModelConfig has no field named 'this'"


@pytest.mark.parametrize("mode", ["none", "poll"])
def test_model_whose_configuration_cannot_be_read_says_why_from_the_start(world: Any, mode: str) -> None:
    async def scenario() -> None:
        world.add("model", "this is no configuration")
        server = world.server(control_mode=mode)
        await server.registry.start()
        state, reason, on_page = shown(server)
        assert state == "NOT LOADED"
        assert MISTAKE in reason
        assert MISTAKE in on_page
        assert world.states(server) == [("model", "", "", reason)]
        await server.registry.stop(1)

    asyncio.run(scenario())


def test_reason_why_a_folder_cannot_be_read_goes_with_its_cause_or_the_wish_to_load_it(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("model", "this is no configuration")
        server = await world.started(control_mode="explicit")
        assert shown(server) == ("NOT LOADED", "", "")
        await world.refused_later(server.model_control.load("model"))
        assert MISTAKE in shown(server)[1]
        (folder / "config.pbtxt").write_text(CONFIG)
        await server.model_control.load("model")
        assert shown(server) == ("READY", "", "")
        (folder / "config.pbtxt").write_text("this is none again")
        await world.refused_later(server.model_control.load("model"))
        state, reason, on_page = shown(server)
        assert (state, reason) == ("READY", "")
        assert MISTAKE in on_page, "the copy before it serves on"
        await server.model_control.unload("model")
        while server.registry.models.draining:
            await asyncio.wait(server.registry.models.draining.values())
        assert shown(server) == ("UNAVAILABLE", "unloaded", "unloaded")
        await world.refused_later(server.model_control.load("model"))
        assert MISTAKE in shown(server)[1]
        assert MISTAKE in shown(server)[2]
        assert world.states(server) == [("model", "1", "UNAVAILABLE", "unloaded")], "as in Triton"
        await server.registry.stop(1)

    asyncio.run(scenario())


def test_mistake_in_a_configuration_that_a_load_brings_along_is_not_that_of_the_folder(world: Any) -> None:
    async def scenario() -> None:
        world.add("model", CONFIG)
        server = await world.started(control_mode="explicit")
        await world.refused_later(server.model_control.load("model", '{"this": 1}'))
        assert shown(server) == ("NOT LOADED", "", "")
        await server.registry.stop(1)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (["cpu"], "cpu"),
        (["cuda:0", "cuda:1"], "gpu 0, 1"),
        (["hpu:0"], "hpu 0"),
        (["cpu", "cuda:3"], "cpu, gpu 3"),
    ],
)
def test_devices_are_spoken_as_configurations_are(labels: list[str], text: str) -> None:
    assert spoken_devices(labels) == text
