"""Which scheduler a configuration gets."""

from __future__ import annotations

from typing import Any

import pytest

from trireme.config.model_config import DynamicBatchingConfig, ModelConfig
from trireme.core.errors import UnsupportedError
from trireme.observe.stats import ModelStats
from trireme.proto import model_config_pb2
from trireme.scheduling.direct import DirectScheduler
from trireme.scheduling.dynamic_batch import DynamicBatchScheduler
from trireme.scheduling.ensemble import EnsembleScheduler
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


def test_sequence_batching_is_refused_with_a_reason() -> None:
    message = model_config_pb2.ModelConfig(name="m", backend="python")
    message.sequence_batching.max_sequence_idle_microseconds = 1
    with pytest.raises(UnsupportedError, match="model 'm' asks for sequence_batching"):
        create_scheduler(ModelConfig.from_message(message), ModelStats("m", 1))
