"""Which scheduler a configuration gets."""

from __future__ import annotations

from typing import Any

from trireme.config.model_config import DynamicBatchingConfig
from trireme.observe.stats import ModelStats
from trireme.scheduling.direct import DirectScheduler
from trireme.scheduling.dynamic_batch import DynamicBatchScheduler
from trireme.scheduling.ensemble.scheduler import EnsembleScheduler
from trireme.scheduling.scheduler import create_scheduler


def test_configuration_chooses_the_scheduler(config_of: Any) -> None:
    stats = ModelStats("model", 1)
    assert type(create_scheduler(config_of(), stats)) is DirectScheduler
    batching = config_of(dynamic_batching=DynamicBatchingConfig(()))
    assert type(create_scheduler(batching, stats)) is DynamicBatchScheduler

    class Port:
        def infer(self, request: Any) -> None: ...

    ensemble = config_of(platform="ensemble")
    assert type(create_scheduler(ensemble, stats, inference=Port())) is EnsembleScheduler
