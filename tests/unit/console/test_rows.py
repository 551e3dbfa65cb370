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
