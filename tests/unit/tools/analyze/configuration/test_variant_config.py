"""What a setting changes in a configuration, and how a configuration is described."""

from __future__ import annotations

from typing import Any

from trireme.tools.analyze.configuration.variant_config import (
    engine_limits,
    instance_count,
    instance_text,
    is_same,
    steps_of,
    variant_config,
)
from trireme.tools.analyze.trial import Setting

OWN: dict[str, Any] = {
    "name": "m",
    "max_batch_size": 8,
    "instance_group": [{"name": "m_0", "count": 1, "kind": "KIND_GPU", "gpus": [0, 1]}],
}


def test_instances_replace_the_count_and_keep_the_devices() -> None:
    config = variant_config(OWN, Setting(instances=3))
    assert config["instance_group"] == [{"kind": "KIND_GPU", "gpus": [0, 1], "count": 3}]
    assert instance_text(config) == "6:GPU"
    assert instance_count(config) == 6
    assert OWN["instance_group"][0]["count"] == 1


def test_a_batch_size_switches_batching_on() -> None:
    config = variant_config(OWN, Setting(max_batch_size=16))
    assert (config["max_batch_size"], config["dynamic_batching"]) == (16, {})


def test_preferred_sizes_are_kept_where_they_fit() -> None:
    own = {**OWN, "dynamic_batching": {"preferred_batch_size": [2, 4, 8], "max_queue_delay_microseconds": 5}}
    assert variant_config(own, Setting(max_batch_size=4))["dynamic_batching"] == {
        "preferred_batch_size": [2, 4],
        "max_queue_delay_microseconds": 5,
    }


def test_the_size_that_the_server_fills_in_does_not_hold_a_larger_one_back() -> None:
    own = {**OWN, "dynamic_batching": {"preferred_batch_size": [8]}}
    assert variant_config(own, Setting(max_batch_size=32))["dynamic_batching"] == {}


def test_sequences_keep_their_own_batcher() -> None:
    own = {**OWN, "sequence_batching": {}}
    assert "dynamic_batching" not in variant_config(own, Setting(max_batch_size=4))


def test_no_batches_means_no_batcher() -> None:
    own = {**OWN, "dynamic_batching": {}}
    assert "dynamic_batching" not in variant_config(own, Setting(max_batch_size=0))


def test_engine_limits_are_parameters() -> None:
    config = variant_config({"backend": "llm"}, Setting(max_sequences=32, max_step_tokens=512))
    assert engine_limits(config) == {"max_sequences": "32", "max_step_tokens": "512"}


def test_a_model_can_be_kept_on_the_cpu() -> None:
    assert variant_config(OWN, Setting(2), is_cpu_only=True)["instance_group"] == [{"count": 2, "kind": "KIND_CPU"}]


def test_other_fields_are_taken_as_they_are() -> None:
    config = variant_config(OWN, Setting(other='{"dynamic_batching": {"max_queue_delay_microseconds": 7}}'))
    assert config["dynamic_batching"] == {"max_queue_delay_microseconds": 7}


def test_groups_of_different_kinds_are_told_apart() -> None:
    groups = [{"count": 2, "kind": "KIND_CPU"}, {"count": 1, "kind": "KIND_AUTO", "gpus": [0]}]
    assert instance_text({"instance_group": groups}) == "2:CPU + 1:GPU"
    assert instance_text({}) == "1:CPU"


def test_a_step_that_is_used_twice_is_one_model() -> None:
    steps = [{"model_name": "a"}, {"model_name": "b"}, {"model_name": "a"}]
    assert steps_of({"ensemble_scheduling": {"step": steps}}) == ["a", "b"]


def test_a_configuration_is_the_same_in_other_words() -> None:
    own = {
        "max_batch_size": 4,
        "dynamic_batching": {"preferred_batch_size": [4], "max_queue_delay_microseconds": "0"},
        "instance_group": [{"name": "m_0", "count": 1, "kind": "KIND_CPU", "gpus": []}],
    }
    assert is_same(own, variant_config(own, Setting(1, 4)))
    assert not is_same(own, variant_config(own, Setting(2, 4)))
    assert not is_same(own, variant_config(own, Setting(1, 8)))
    without = {"max_batch_size": 4}
    assert is_same(without, variant_config(without, Setting(1)))
    assert not is_same(without, variant_config(without, Setting(1, 4))), "requests are joined now"
