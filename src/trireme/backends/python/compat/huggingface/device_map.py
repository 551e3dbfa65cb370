"""`device_map` without the package accelerate, which every release refuses."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from types import ModuleType
from typing import Any

from trireme.backends.python.compat import switches
from trireme.backends.python.compat.report import tell_change, tell_offer, tell_rescue
from trireme.backends.python.worker_device import CPU, device_of_worker

WORD = "device_map"
_ACCELERATORS = ("cuda", "hpu")


def accept_without_accelerate(class_name: str) -> Callable[[ModuleType], None]:
    """Changes `from_pretrained` of this class."""

    def patch(module: ModuleType) -> None:
        cls = getattr(module, class_name)
        load = cls.__dict__["from_pretrained"].__func__

        @functools.wraps(load)
        def from_pretrained(cls: Any, *args: Any, **kwargs: Any) -> Any:
            device = settle(kwargs)
            loaded = load(cls, *args, **kwargs)
            if device is None:
                return loaded
            if isinstance(loaded, tuple):  # with output_loading_info
                return (loaded[0].to(device), *loaded[1:])
            return loaded.to(device)

        cls.from_pretrained = classmethod(from_pretrained)

    return patch


def place_pipeline(module: ModuleType) -> None:
    """In `transformers.pipelines`: the pipeline is on the device that its model was put on."""
    make = module.pipeline

    @functools.wraps(make)
    def pipeline(*args: Any, **kwargs: Any) -> Any:
        device = settle(kwargs) if switches.is_asked_for(WORD) else None
        if device is not None:
            kwargs.setdefault("device", device)
        return make(*args, **kwargs)

    module.pipeline = pipeline  # type: ignore[attr-defined]


def settle(kwargs: dict[str, Any]) -> str | None:
    """Takes the argument out where it is refused, and says where the whole model is to be moved, if it was asked for.
    A worker that has nothing but the CPU needs no map; elsewhere the library's refusal stands."""
    device_map = kwargs.get("device_map")
    if device_map is None or importlib.util.find_spec("accelerate") is not None:
        return None
    missing = f"device_map={device_map!r} needs the package accelerate, which is not installed"
    named = _named_device(device_map)
    if switches.is_asked_for(WORD):
        del kwargs["device_map"]
        device = named or _own_device()
        tell_change(WORD, f"{missing}: the whole model was put on '{device}'", WORD)
        return device
    if not switches.may_rescue():
        return None
    if _own_device() == CPU and named in (None, CPU):
        del kwargs["device_map"]
        tell_rescue(WORD, f"{missing}: it was left out, since there is nothing but the CPU")
        return None
    tell_offer(WORD, f"{missing}; compat '{WORD}' puts the whole model on '{named or _own_device()}' instead")
    return None


def _named_device(device_map: Any) -> str | None:
    """The one device that a map names; None where it leaves the choice, or names several."""
    places = set(device_map.values()) if isinstance(device_map, dict) else {device_map}
    named = str(places.pop()) if len(places) == 1 else ""
    if named.isdecimal():
        return f"cuda:{named}"
    return named if named.partition(":")[0] in (CPU, *_ACCELERATORS) else None


def _own_device() -> str:
    """The worker's, as torch names it."""
    own = device_of_worker()
    return own if own.startswith(_ACCELERATORS) else CPU
