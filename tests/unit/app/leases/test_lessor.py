"""Who looks at which models, and from when on their load counts; nothing here has workers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf import text_format

from trireme.app.front_ends import _server_without_models
from trireme.app.leases import lessor as lessor_module
from trireme.app.leases.lessor import Lessor
from trireme.app.leases.rental import Rental
from trireme.config.message import new_config
from trireme.config.model_config import ModelConfig
from trireme.config.options.server import ServerOptions
from trireme.core.batch import BatchTiming
from trireme.core.request import InferenceRequest
from trireme.observe.stats import ModelStats
from trireme.registry.model import Model
from trireme.registry.repository.repositories import ModelId
from trireme.scheduling.direct import DirectScheduler

BACKEND: Any = SimpleNamespace(supervisors=(), quarantine=SimpleNamespace(suspects=()))


def test_what_was_counted_before_a_rental_or_while_it_rests_is_no_load() -> None:
    model = model_of(1)
    count_requests(model, 1000)
    rental = Rental(model, BACKEND, iter(range(9)))
    assert not rental._look_at_load([])
    count_requests(model, 1000)
    rental.rest("a test asks for it")
    assert not rental._look_at_load([])
    count_requests(model, 1000)
    assert rental._look_at_load([])


def test_a_model_that_is_alone_again_has_the_rental_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        first, second = model_of(1), model_of(2)
        serving = [first]
        server = _server_without_models(ServerOptions())
        monkeypatch.setattr(server.registry.models, "serving", lambda: iter(serving))
        monkeypatch.setattr(lessor_module, "leasable_backend", lambda model: BACKEND)
        processes: Any = SimpleNamespace(living=[], on_unfit=None)
        lessor = Lessor(processes, server)
        [(_, rental)] = lessor._fitting()
        serving.append(second)
        assert lessor._fitting() == []
        serving.remove(second)
        assert lessor._fitting() == [(first, rental)]
        serving.remove(first)
        assert lessor._fitting() == []
        assert not lessor._rentals

    asyncio.run(go())


def model_of(version: int) -> Model:
    message = new_config()
    text_format.Parse('name: "m" backend: "python"', message)
    stats = ModelStats("m", version)
    return Model(ModelId("", "m"), version, ModelConfig.from_message(message), DirectScheduler(stats), stats)


def count_requests(model: Model, count: int) -> None:
    request = InferenceRequest("m", "", "", {}, lambda response: None)
    for _ in range(count):
        model.stats.record_batch([request], 1, 1, 2, BatchTiming(1, 1, 1))
