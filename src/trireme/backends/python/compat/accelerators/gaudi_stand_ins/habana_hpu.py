"""`habana_frameworks.torch.hpu`, which is `torch.hpu` too: one device, which is always idle."""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import Any

from trireme.backends.python.compat.accelerators.gaudi_device import HPU, stand_in_device
from trireme.backends.python.compat.accelerators.importing_code import is_of_model

graphs: Any = importlib.import_module("habana_frameworks.torch.hpu.graphs")
random: Any = importlib.import_module("habana_frameworks.torch.hpu.random")
DEVICE_NAME = "CPU in place of an HPU"


def is_available() -> bool:
    """For the model's files; libraries are told the truth, or they would do what only a Gaudi needs."""
    return is_of_model(sys._getframe(1))


def device_count() -> int:
    """One."""
    return 1


def current_device() -> int:
    """The first."""
    return 0


def get_device_name(device: Any = None) -> str:
    """What stands in."""
    place = stand_in_device()
    return DEVICE_NAME if place == "cpu" else f"{place} in place of an HPU"


def set_device(device: Any) -> None:
    """There is only one."""


def is_bf16_supported() -> bool:
    """Both the CPU and GPUs compute in it."""
    return True


def synchronize(device: Any = None) -> None:
    """Waits for the GPU where one stands in."""
    if stand_in_device() != "cpu":
        importlib.import_module("torch").cuda.synchronize(stand_in_device())


def memory_allocated(device: Any = None) -> int:
    """No memory of an HPU is in use."""
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated


def memory_stats(device: Any = None) -> dict[str, int]:
    """By the names that the real ones have."""
    return {"Limit": 0, "InUse": 0, "MaxInUse": 0}


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes."""
    return 0, 0


def accept(*_args: Any, **_options: Any) -> None:
    """For switches of a device that is not there."""


reset_peak_memory_stats = reset_accumulated_memory_stats = empty_cache = init = accept
enable_dynamic_shape = disable_dynamic_shape = enable_inference_mode = disable_inference_mode = accept
enable_const_section_serialization = setDeterministic = accept


class Stream:
    """Work is done in the order in which it is called."""

    def __init__(self, *_args: Any, **_options: Any) -> None:
        self.device = importlib.import_module("torch").device(HPU)

    def synchronize(self) -> None:
        """All is done."""
        synchronize()

    def query(self) -> bool:
        """All is done."""
        return True

    def wait_stream(self, stream: Any) -> None:
        """What it did is done."""

    wait_event = record_event = accept


def current_stream(device: Any = None) -> Stream:
    """Any stream is as good as another."""
    return Stream()


default_stream = current_stream


def stream(_stream: Any) -> contextlib.AbstractContextManager[None]:
    """The context in which work goes to this stream."""
    return contextlib.nullcontext()


HPUGraph, ModuleCacher, graph = graphs.HPUGraph, graphs.ModuleCacher, graphs.graph
make_graphed_callables, wrap_in_hpu_graph = graphs.make_graphed_callables, graphs.wrap_in_hpu_graph
wrap_in_hpu_graph_func = graphs.wrap_in_hpu_graph_func
manual_seed, manual_seed_all, initial_seed = random.manual_seed, random.manual_seed_all, random.initial_seed
get_rng_state, set_rng_state = random.get_rng_state, random.set_rng_state

__all__ = [
    "HPUGraph",
    "ModuleCacher",
    "Stream",
    "current_device",
    "current_stream",
    "default_stream",
    "device_count",
    "disable_dynamic_shape",
    "disable_inference_mode",
    "empty_cache",
    "enable_const_section_serialization",
    "enable_dynamic_shape",
    "enable_inference_mode",
    "get_device_name",
    "get_rng_state",
    "graph",
    "graphs",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "make_graphed_callables",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "random",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "setDeterministic",
    "set_device",
    "set_rng_state",
    "stream",
    "synchronize",
    "wrap_in_hpu_graph",
    "wrap_in_hpu_graph_func",
]
