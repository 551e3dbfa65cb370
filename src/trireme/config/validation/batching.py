"""Checks of `dynamic_batching`: preferred sizes, priorities and queue policies."""

from __future__ import annotations

from collections.abc import Iterable

from trireme.config.message import ConfigMessage
from trireme.core.errors import InvalidArgumentError
from trireme.proto import model_config_pb2


def validate_dynamic_batching(message: ConfigMessage) -> None:
    if not message.HasField("dynamic_batching"):
        return
    batching, name = message.dynamic_batching, message.name
    for size in batching.preferred_batch_size:
        if size <= 0:
            raise InvalidArgumentError(f"dynamic batching preferred size must be positive for {name}")
        if size > message.max_batch_size:
            raise InvalidArgumentError(f"dynamic batching preferred size must be <= max batch size for {name}")
    if batching.priority_levels > 0:
        _validate_priorities(batching, name)
    if batching.preserve_ordering:
        _validate_ordering(batching, name)


def _validate_priorities(batching: model_config_pb2.ModelDynamicBatching, name: str) -> None:
    levels = batching.priority_levels
    if not 1 <= batching.default_priority_level <= levels:
        raise InvalidArgumentError(f"default priority level must be in range [1, {levels}] for {name}")
    if any(not 1 <= level <= levels for level in batching.priority_queue_policy):
        raise InvalidArgumentError(f"priority queue policy must have priority level in range [1, {levels}] for {name}")


def _validate_ordering(batching: model_config_pb2.ModelDynamicBatching, name: str) -> None:
    if batching.priority_levels > 1:
        raise InvalidArgumentError(f"Only one priority level is allowed when 'preserve_ordering' is true for {name}")
    policies = [batching.default_queue_policy]
    policies += [batching.priority_queue_policy[level] for level in batching.priority_queue_policy]
    if _delays_requests(policies):
        raise InvalidArgumentError(
            f"Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for {name}"
        )


def _delays_requests(policies: Iterable[model_config_pb2.ModelQueuePolicy]) -> bool:
    """DELAY without a timeout never happens, so it is no conflict."""
    delay = model_config_pb2.ModelQueuePolicy.DELAY
    return any(policy.timeout_action == delay and policy.default_timeout_microseconds != 0 for policy in policies)
