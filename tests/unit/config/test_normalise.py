"""Defaults written into the message, and instance groups resolved for the machine."""

from __future__ import annotations

import pytest

from trireme.config.message import ConfigMessage, copy_of, enum_name
from trireme.config.normalise import normalise, normalise_instance_groups
from trireme.config.text.pbtxt import parse_text


def normalised(text: str) -> ConfigMessage:
    message = parse_text('name: "m" ' + text, "p")
    normalise(message)
    return message


def groups(text: str, gpu_count: int) -> list[tuple[str, str, int, list[int]]]:
    message = parse_text('name: "m" ' + text, "p")
    normalise_instance_groups(message, gpu_count)
    return [(group.name, enum_name(group, "kind"), group.count, list(group.gpus)) for group in message.instance_group]


def test_the_newest_version_and_pinned_memory_are_the_default() -> None:
    message = normalised('backend: "python" optimization { input_pinned_memory { enable: false } }')
    assert message.version_policy.latest.num_versions == 1
    assert not message.optimization.input_pinned_memory.enable
    assert message.optimization.output_pinned_memory.enable


def test_an_explicit_empty_latest_policy_stays_empty() -> None:
    assert normalised("version_policy { latest { } }").version_policy.latest.num_versions == 0


def test_an_ensemble_gets_no_optimization() -> None:
    assert not normalised('platform: "ensemble"').HasField("optimization")


@pytest.mark.parametrize(("size", "expected"), [(8, [8]), (0, [])])
def test_the_preferred_size_is_the_largest_where_there_is_one(size: int, expected: list[int]) -> None:
    message = normalised(f"max_batch_size: {size} dynamic_batching {{ }}")
    assert list(message.dynamic_batching.preferred_batch_size) == expected


def test_sequences_get_their_idle_time_and_preferred_size() -> None:
    batching = normalised("max_batch_size: 4 sequence_batching { oldest { } }").sequence_batching
    assert batching.max_sequence_idle_microseconds == 1_000_000
    assert list(batching.oldest.preferred_batch_size) == [4]


def test_normalising_twice_changes_nothing() -> None:
    message = normalised("max_batch_size: 4 dynamic_batching { }")
    again = copy_of(message)
    normalise(again)
    assert again == message


@pytest.mark.parametrize(
    ("text", "gpu_count", "expected"),
    [
        ("", 0, [("m", "KIND_CPU", 1, [])]),
        ("", 2, [("m", "KIND_GPU", 1, [0, 1])]),
        ('backend: "onnxruntime"', 0, [("m", "KIND_CPU", 2, [])]),
        ("instance_group { } instance_group { kind: KIND_MODEL count: 3 }", 0,
         [("m_0", "KIND_CPU", 1, []), ("m_1", "KIND_MODEL", 3, [])]),
        ("instance_group { gpus: [1] }", 2, [("m_0", "KIND_GPU", 1, [1])]),
        ("instance_group { gpus: [5] }", 2, [("m_0", "KIND_CPU", 1, [5])]),
        ('instance_group { name: "g" kind: KIND_GPU count: -1 }', 1, [("g", "KIND_GPU", 1, [0])]),
        ('platform: "ensemble"', 1, []),
    ],
)  # fmt: skip
def test_instance_groups_are_resolved(
    text: str, gpu_count: int, expected: list[tuple[str, str, int, list[int]]]
) -> None:
    assert groups(text, gpu_count) == expected
