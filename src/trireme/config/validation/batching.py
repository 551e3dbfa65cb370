"""Checks of `dynamic_batching`: preferred sizes, priorities and queue policies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trireme.config.message import ConfigMessage
from trireme.config.validation.problem import Problem
from trireme.proto import model_config_pb2

_SIZES = "dynamic_batching.preferred_batch_size"


def dynamic_batching_problems(message: ConfigMessage) -> Iterator[Problem]:
    if not message.HasField("dynamic_batching"):
        return
    batching, name = message.dynamic_batching, message.name
    sizes = batching.preferred_batch_size
    if any(size <= 0 for size in sizes):
        yield Problem(f"dynamic batching preferred size must be positive for {name}", _SIZES)
    if any(size > message.max_batch_size for size in sizes):
        yield Problem(
            f"dynamic batching preferred size must be <= max batch size for {name}",
            _SIZES,
            f"raise max_batch_size, which is {message.max_batch_size}, to {max(sizes)}, or lower the preferred sizes",
        )
    if batching.priority_levels > 0:
        yield from _priority_problems(batching, name)
    if batching.preserve_ordering:
        yield from _ordering_problems(batching, name)


def _priority_problems(batching: model_config_pb2.ModelDynamicBatching, name: str) -> Iterator[Problem]:
    levels = batching.priority_levels
    if not 1 <= batching.default_priority_level <= levels:
        yield Problem(
            f"default priority level must be in range [1, {levels}] for {name}",
            "dynamic_batching.default_priority_level",
        )
    if any(not 1 <= level <= levels for level in batching.priority_queue_policy):
        yield Problem(
            f"priority queue policy must have priority level in range [1, {levels}] for {name}",
            "dynamic_batching.priority_queue_policy",
        )


def _ordering_problems(batching: model_config_pb2.ModelDynamicBatching, name: str) -> Iterator[Problem]:
    if batching.priority_levels > 1:
        yield Problem(
            f"Only one priority level is allowed when 'preserve_ordering' is true for {name}",
            "dynamic_batching.priority_levels",
        )
    policies = [batching.default_queue_policy]
    policies += [batching.priority_queue_policy[level] for level in batching.priority_queue_policy]
    if _delays_requests(policies):
        yield Problem(
            f"Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for {name}",
            "dynamic_batching.preserve_ordering",
        )


def _delays_requests(policies: Iterable[model_config_pb2.ModelQueuePolicy]) -> bool:
    """DELAY without a timeout never happens, so it is no conflict."""
    delay = model_config_pb2.ModelQueuePolicy.DELAY
    return any(policy.timeout_action == delay and policy.default_timeout_microseconds != 0 for policy in policies)
