"""Which NeuronCores an instance gets, and what the Neuron runtime is told."""

from __future__ import annotations

from typing import Any

import pytest

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.compiled.parameters import Parameters
from trireme.backends.neuron.cores import CoreShare, announce, core_share


def config_of(count: int = 1, groups: int = 1, **parameters: object) -> dict[str, Any]:
    return {
        "name": "m",
        "instance_group": [{"count": count, "kind": "KIND_MODEL"}] * groups,
        "parameters": {key: {"string_value": str(value)} for key, value in parameters.items()},
    }


def share_of(config: dict[str, Any], name: str, environ: dict[str, str] | None = None) -> CoreShare:
    return core_share(config, Parameters(config), name, environ or {})


def ranged(count: int = 1, first: object = 0, last: object = 15, **parameters: object) -> dict[str, Any]:
    return config_of(count, NEURON_CORE_START_INDEX=first, NEURON_CORE_END_INDEX=last, **parameters)


def test_one_instance_has_the_whole_range() -> None:
    share = share_of(ranged(NUM_THREADS_PER_CORE=2), "m_0")
    assert (share.text, share.count, share.replica_count) == ("0-15", 16, 32)


@pytest.mark.parametrize(("index", "cores"), [(0, "0-3"), (1, "4-7"), (2, "8-11"), (3, "12-15")])
def test_instances_share_the_range_by_the_number_in_their_name(index: int, cores: str) -> None:
    assert share_of(ranged(4), f"m_0_{index}").text == cores


def test_range_may_begin_anywhere_and_what_does_not_divide_stays_idle() -> None:
    assert share_of(ranged(2, 3, 9), "m_0_1").text == "6-8"


@pytest.mark.parametrize(
    ("config", "name", "words"),
    [
        (config_of(groups=2), "m_0", "supports only a single instance group, got 2"),
        (config_of(), "m_0", "'trireme neuron-model' writes them"),
        (ranged(first=5, last=2), "m_0", "got 5 to 2"),
        (ranged(first="x"), "m_0", "must be a whole number, found 'x'"),
        (ranged(NUM_THREADS_PER_CORE=0), "m_0", "must be at least 1, found 0"),
        (ranged(17), "m_0_0", "has 17 instances for 16 NeuronCores (0 to 15)"),
        (ranged(2), "m", "end with '_<index>', got 'm'"),
        (ranged(2), "m_0_2", "end with '_<index>', got 'm_0_2'"),
    ],
)
def test_what_cannot_be_met_is_refused(config: dict[str, Any], name: str, words: str) -> None:
    with pytest.raises(ModelLoadError) as caught:
        share_of(config, name)
    assert words in str(caught.value)


@pytest.mark.parametrize(("visible", "first", "count"), [("4-7", 4, 4), ("2", 2, 1), ("0,1,6-7", 0, 4)])
def test_cores_that_the_server_gave_come_first(visible: str, first: int, count: int) -> None:
    environ = {"TRIREME_DEVICE": "neuron:0-3", "NEURON_RT_VISIBLE_CORES": visible}
    share = share_of(ranged(), "m_0", environ)
    assert (share.first, share.count) == (first, count)
    announce(share, environ, is_tensorflow=False)
    assert environ["NEURON_RT_VISIBLE_CORES"] == visible


def test_runtime_is_told_the_range_and_nothing_that_contradicts_it() -> None:
    environ = {"NEURON_RT_NUM_CORES": "2", "NEURON_RT_VISIBLE_CORES": "0"}
    announce(CoreShare(4, 4, 1), environ, is_tensorflow=False)
    assert environ == {"NEURON_RT_VISIBLE_CORES": "4-7"}


def test_tensorflow_is_told_one_group_per_core() -> None:
    environ: dict[str, str] = {}
    announce(CoreShare(0, 3, 2), environ, is_tensorflow=True)
    assert environ == {"NEURON_RT_VISIBLE_CORES": "0-2", "NEURONCORE_GROUP_SIZES": "1,1,1"}
