"""The device that "hpu" means where there is no Gaudi, and torch's ways to name a device taught to accept it."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable
from typing import Any

from trireme.backends.python.worker_device import CPU, device_of_worker

HPU = "hpu"
_MARK = "_trireme_hpu"
_NEW_METHODS = ("new_empty", "new_full", "new_ones", "new_tensor", "new_zeros")
_LIKE_FUNCTIONS = ("empty_like", "full_like", "ones_like", "rand_like", "randint_like", "randn_like", "zeros_like")


def stand_in_device() -> str:
    """The GPU that the worker was given, or the CPU."""
    device = device_of_worker()
    return device if device.startswith("cuda") else CPU


def lend_device_to_hpu() -> None:
    """From now on torch in this process takes `"hpu"` and `torch.device("hpu")` for the stand-in's device.

    A device object keeps its name, so that `torch.device("hpu")` still says hpu; only what uses one is taught.
    """
    torch: Any = importlib.import_module("torch")
    if hasattr(torch, _MARK):
        return
    setattr(torch, _MARK, True)
    for owner, name in _places(torch):
        _teach(owner, name, functools.partial(_translated, torch.device, stand_in_device()))
    _teach(
        torch.autocast, "__init__", functools.partial(_translated, torch.device, stand_in_device().partition(":")[0])
    )
    compile_model = torch.compile

    @functools.wraps(compile_model)
    def compile_or_leave(model: Any = None, **options: Any) -> Any:
        if options.get("backend") != "hpu_backend":
            return compile_model(model, **options)
        return (lambda function: function) if model is None else model

    torch.compile = compile_or_leave
    torch.Tensor.hpu = torch.nn.Module.hpu = _to_hpu


def is_lent() -> bool:
    """Whether "hpu" is not an HPU in this process."""
    return hasattr(importlib.import_module("torch"), _MARK)


def _places(torch: Any) -> Iterable[tuple[Any, str]]:
    contexts = importlib.import_module("torch.utils._device")
    # The context keeps this set by identity: it has to be made before any of the functions is replaced.
    for constructor in list(contexts._device_constructors()):
        name = constructor.__name__
        if getattr(torch, name, None) is constructor:
            yield torch, name
    yield from ((torch, name) for name in _LIKE_FUNCTIONS)
    yield from ((torch.Tensor, name) for name in ("to", *_NEW_METHODS))
    yield torch.nn.Module, "to"
    yield torch, "load"
    yield contexts.DeviceContext, "__init__"


def _teach(owner: Any, name: str, translated: Callable[[Any], Any]) -> None:
    original: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > 1:
            args = (args[0], translated(args[1]), *args[2:])
        for key in ("device", "map_location", "device_type"):
            if key in kwargs:
                kwargs[key] = translated(kwargs[key])
        return original(*args, **kwargs)

    setattr(owner, name, call)


def _translated(device_class: type, stand_in: str, value: Any) -> Any:
    if isinstance(value, str):
        return stand_in if value.partition(":")[0] == HPU else value
    if isinstance(value, device_class) and value.type == HPU:  # type: ignore[attr-defined]
        return device_class(stand_in)
    return value


def _to_hpu(self: Any, *_args: Any, **_kwargs: Any) -> Any:
    return self.to(HPU)
