"""Who owns which exclusive device, and what a process on a device is told."""

from __future__ import annotations

import asyncio

import pytest

from trireme.backends.python import worker_device
from trireme.core.errors import InvalidArgumentError, UnavailableError
from trireme.devices import environment
from trireme.devices.environment import Assignment, ranges, whole_device
from trireme.devices.inventory import Inventory, discover
from trireme.devices.ownership import DeviceOwnership, DeviceRequest, Owner

HPU = DeviceRequest("hpu")


def machine(spec: str) -> Inventory:
    return discover(spec, {})


def owner(model: str, instance: int = 0, copy: int = 1) -> Owner:
    return Owner(model, 1, f"{model}_{instance}", copy)


def take(ownership: DeviceOwnership, who: Owner, wanted: DeviceRequest = HPU) -> Assignment:
    return asyncio.run(ownership.take(who, wanted))


def test_shared_devices_are_given_to_everybody() -> None:
    ownership = DeviceOwnership(machine("cuda:1"))
    for model in ("a", "b", "c"):
        assert take(ownership, owner(model), DeviceRequest("cuda", 0)) == Assignment("cuda", 0, gpu_count=1)
        assert take(ownership, owner(model), DeviceRequest()) == Assignment("cpu")


def test_exclusive_device_has_one_owner() -> None:
    ownership = DeviceOwnership(machine("hpu:2"))
    assert take(ownership, owner("a")).units == (0,)
    assert take(ownership, owner("b")).units == (1,)
    with pytest.raises(UnavailableError) as refusal:
        take(ownership, owner("c"))
    text = refusal.value.message
    assert "instance 'c_0' of model 'c' needs 1 of the 2 Gaudi accelerators (HPUs)" in text
    assert "hpu 0 belongs to model 'a' version 1, instance 'a_0'" in text
    assert "hpu 1 belongs to model 'b' version 1, instance 'b_0'" in text
    assert "Unload one of these models" in text
    ownership.release(owner("a"))
    assert take(ownership, owner("c")).units == (0,)
    with pytest.raises(UnavailableError, match=r"hpu 0 belongs to model 'c' .*; hpu 1 belongs to model 'b'"):
        take(ownership, owner("d"))


def test_reload_has_the_old_copy_end_first_where_nothing_else_is_free() -> None:
    ownership = DeviceOwnership(machine("hpu:1"))
    asked: list[str] = []

    def end_old_copy(model: str) -> bool:
        asked.append(model)
        ownership.release(owner("a"))
        return True

    ownership.end_old_copy = end_old_copy
    take(ownership, owner("a"))
    assert take(ownership, owner("a", copy=2)).units == (0,)
    assert asked == ["a"]


def test_reload_is_refused_where_nothing_makes_way() -> None:
    ownership = DeviceOwnership(machine("hpu:2"), end_old_copy=lambda _model: False)
    take(ownership, owner("a"))
    take(ownership, owner("b"))
    with pytest.raises(UnavailableError, match="hpu 0 belongs to model 'a'"):
        take(ownership, owner("a", copy=2))


def test_copy_does_not_end_for_what_others_keep_anyway() -> None:
    asked: list[str] = []
    ownership = DeviceOwnership(machine("neuron:1x4"), end_old_copy=lambda model: bool(asked.append(model)) or True)
    take(ownership, owner("a"), DeviceRequest("neuron", units=(0, 1)))
    take(ownership, owner("b"), DeviceRequest("neuron", units=(2,)))
    with pytest.raises(UnavailableError, match="neuron 2 belongs to model 'b'"):
        take(ownership, owner("a", copy=2), DeviceRequest("neuron", units=(1, 2)))
    with pytest.raises(UnavailableError):
        take(ownership, owner("c"), DeviceRequest("neuron", count=2))
    assert asked == []


def test_release_of_one_copy_leaves_the_other() -> None:
    ownership = DeviceOwnership(machine("hpu:2"))
    take(ownership, owner("a"))
    assert take(ownership, owner("a", copy=2)).units == (1,)
    ownership.release(owner("a"))
    ownership.release(owner("a"))
    assert take(ownership, owner("b")).units == (0,)
    with pytest.raises(UnavailableError, match="hpu 1 belongs to model 'a'"):
        take(ownership, owner("c"))


def test_cores_are_given_in_rows() -> None:
    ownership = DeviceOwnership(machine("neuron:2x4"))
    assert take(ownership, owner("a"), DeviceRequest("neuron", units=(1, 2))).units == (1, 2)
    assert take(ownership, owner("b"), DeviceRequest("neuron", count=3)).units == (5, 6, 7)
    assert take(ownership, owner("c"), DeviceRequest("neuron")).units == (4,)
    with pytest.raises(UnavailableError, match=r"NeuronCores 2-5, .* neuron 2 .*'a'.* neuron 4 .*'c'.* neuron 5 .*'b'"):
        take(ownership, owner("d"), DeviceRequest("neuron", units=(2, 3, 4, 5)))
    with pytest.raises(UnavailableError, match="needs 3 of the 8 NeuronCores"):
        take(ownership, owner("d"), DeviceRequest("neuron", count=3))


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (HPU, "asks for 1 Gaudi accelerators (HPUs), but the server has no Gaudi accelerators (HPUs)"),
        (DeviceRequest("neuron", units=(3, 4)), "asks for NeuronCores 3-4, but the server has NeuronCores 0-3"),
        (DeviceRequest("neuron", count=9), "asks for 9 NeuronCores, but the server has NeuronCores 0-3"),
    ],
)
def test_what_does_not_exist_is_refused(wanted: DeviceRequest, text: str) -> None:
    with pytest.raises(InvalidArgumentError) as refusal:
        take(DeviceOwnership(machine("neuron:1x4")), owner("a"), wanted)
    assert text in refusal.value.message
    assert "(its devices: cpu, neuron:0)" in refusal.value.message


def test_models_that_are_ending_are_waited_for() -> None:
    async def scenario() -> None:
        ending = {"a"}
        ownership = DeviceOwnership(machine("hpu:1"), ending.__contains__)
        await ownership.take(owner("a"), HPU)
        waiting = asyncio.create_task(ownership.take(owner("b"), HPU))
        await asyncio.sleep(0)
        assert not waiting.done()
        ownership.release(owner("a"))
        assert (await waiting).units == (0,)
        ending.clear()
        with pytest.raises(UnavailableError):
            await ownership.take(owner("c"), HPU)

    asyncio.run(scenario())


def test_worker_reads_what_the_server_writes() -> None:
    assert environment.DEVICE_VARIABLE == worker_device.DEVICE_VARIABLE


def test_variables_of_each_kind() -> None:
    assert Assignment().variables({}) == {"TRIREME_DEVICE": "cpu"}
    assert Assignment("cuda", 1, gpu_count=2).variables({}) == {
        "TRIREME_DEVICE": "cuda:1",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    assert Assignment("hpu", 0, (5,)).variables({}) == {
        "TRIREME_DEVICE": "hpu:0",
        "HABANA_VISIBLE_MODULES": "5",
        "PT_HPU_LAZY_MODE": "1",
    }
    assert Assignment("neuron", 0, (4, 5)).variables({}) == {
        "TRIREME_DEVICE": "neuron:0-1",
        "NEURON_RT_VISIBLE_CORES": "4-5",
        "NEURON_RT_NUM_CORES": "2",
        "NEURONCORE_GROUP_SIZES": "1,1",
    }


def test_gpus_are_hidden_where_the_given_devices_have_none() -> None:
    for spec, visible in (("cpu", ""), ("hpu:1", ""), ("cuda:2", None)):
        assignment = take(DeviceOwnership(machine(spec)), owner("a"), DeviceRequest())
        assert assignment.variables({}).get("CUDA_VISIBLE_DEVICES") == visible
    assert DeviceOwnership(machine("cpu")).inventory.is_given


def test_variables_of_the_user_stay() -> None:
    given = {"CUDA_VISIBLE_DEVICES": "3"}
    assert Assignment("cuda", 0, gpu_count=1).variables(given) == {"TRIREME_DEVICE": "cuda:0"}
    assert "PT_HPU_LAZY_MODE" not in Assignment("hpu", 0, (0,)).variables({"PT_HPU_LAZY_MODE": "0"})
    given = {"NEURONCORE_GROUP_SIZES": "4", "NEURON_RT_NUM_CORES": "4"}
    assert not given.keys() & Assignment("neuron", 0, (0, 1)).variables(given).keys()


def test_numbers_are_written_as_ranges() -> None:
    assert ranges((6, 0, 1, 2, 8, 9)) == "0-2,6,8-9"
    inventory = machine("neuron:2x2")
    assert whole_device(inventory.devices[2], inventory).device == "neuron:0-1"
    assert whole_device(inventory.devices[2], inventory).on_machine == "NeuronCores 2-3"
