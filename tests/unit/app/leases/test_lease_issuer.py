"""Who looks at which models, and from when on their load counts; nothing here has workers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf import text_format

from trireme.app.front_ends import _server_without_models
from trireme.app.leases import lease_issuer as lease_issuer_module
from trireme.app.leases.lease_issuer import LeaseIssuer
from trireme.app.leases.model_leases import ModelLeases
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


def test_what_was_counted_before_leases_or_while_they_rest_is_no_load() -> None:
    model = model_of(1)
    count_requests(model, 1000)
    model_leases = ModelLeases(model, BACKEND, iter(range(9)))
    assert not model_leases._look_at_load([])
    count_requests(model, 1000)
    model_leases.rest("a test asks for it")
    assert not model_leases._look_at_load([])
    count_requests(model, 1000)
    assert model_leases._look_at_load([])


def test_a_model_that_is_alone_again_has_the_leases_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        first, second = model_of(1), model_of(2)
        serving = [first]
        server = _server_without_models(ServerOptions())
        monkeypatch.setattr(server.registry.models, "serving", lambda: iter(serving))
        monkeypatch.setattr(lease_issuer_module, "leasable_backend", lambda model: BACKEND)
        processes: Any = SimpleNamespace(living=[], on_unfit=None)
        lease_issuer = LeaseIssuer(processes, server)
        [(_, model_leases)] = lease_issuer._fitting()
        serving.append(second)
        assert lease_issuer._fitting() == []
        serving.remove(second)
        assert lease_issuer._fitting() == [(first, model_leases)]
        serving.remove(first)
        assert lease_issuer._fitting() == []
        assert not lease_issuer._model_leases

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
