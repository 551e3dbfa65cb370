"""Which models' workers may be leased."""

from __future__ import annotations

import pytest
from google.protobuf import text_format

from trireme.app.leases.fitness import is_plain
from trireme.config.message import new_config
from trireme.config.model_config import ModelConfig

DECOUPLED = "model_transaction_policy { decoupled: true }"
CACHED = "response_cache { enable: true }"


@pytest.mark.parametrize("text", ["", "max_batch_size: 8", "max_batch_size: 8 dynamic_batching { }"])
def test_a_model_without_anything_in_common_is_plain(text: str) -> None:
    assert is_plain(config(text))


@pytest.mark.parametrize(
    "text",
    [
        "max_batch_size: 8 sequence_batching { }",
        "max_batch_size: 8 dynamic_batching { priority_levels: 2 default_priority_level: 1 }",
        "max_batch_size: 8 dynamic_batching { preserve_ordering: true }",
        "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 100 }",
        "max_batch_size: 8 dynamic_batching { default_queue_policy { max_queue_size: 3 } }",
        "max_batch_size: 8 dynamic_batching { default_queue_policy { default_timeout_microseconds: 3 } }",
        "max_batch_size: 8 dynamic_batching { default_queue_policy { allow_timeout_override: true } }",
        "max_batch_size: 65 dynamic_batching { }",
        DECOUPLED,
        CACHED,
    ],
)
def test_what_needs_one_queue_is_not(text: str) -> None:
    assert not is_plain(config(text))


def config(text: str) -> ModelConfig:
    message = new_config()
    text_format.Parse('name: "m" ' + text, message)
    return ModelConfig.from_message(message)
