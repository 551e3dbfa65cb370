"""Arguments of `from_pretrained` and `pipeline` that were renamed, or that need a package that is not there."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from types import ModuleType
from typing import Any

from trireme.backends.python.compat.huggingface.access_token import none_if_empty
from trireme.backends.python.compat.report import tell_once
from trireme.backends.python.worker_device import CPU, device_of_worker


def absorb_in(class_name: str, places_weights: bool = False) -> Callable[[ModuleType], None]:
    """Changes `from_pretrained` of this class, which puts weights on a device or does not."""

    def patch(module: ModuleType) -> None:
        cls = getattr(module, class_name)
        load = cls.__dict__["from_pretrained"].__func__

        @functools.wraps(load)
        def from_pretrained(cls: Any, *args: Any, **kwargs: Any) -> Any:
            settle_token(kwargs)
            device = take_device_map(kwargs) if places_weights else None
            loaded = load(cls, *args, **kwargs)
            if device is None:
                return loaded
            if isinstance(loaded, tuple):  # with output_loading_info
                return (loaded[0].to(device), *loaded[1:])
            return loaded.to(device)

        cls.from_pretrained = classmethod(from_pretrained)

    return patch


def absorb_in_pipeline(module: ModuleType) -> None:
    """Changes `transformers.pipeline`."""
    make = module.pipeline

    @functools.wraps(make)
    def pipeline(*args: Any, **kwargs: Any) -> Any:
        settle_token(kwargs)
        device = take_device_map(kwargs)
        if device is not None:
            kwargs.setdefault("device", device)
        return make(*args, **kwargs)

    module.pipeline = pipeline  # type: ignore[attr-defined]


def settle_token(kwargs: dict[str, Any]) -> None:
    """`use_auth_token` by its present name, and an empty token as none."""
    if "use_auth_token" in kwargs:
        old = kwargs.pop("use_auth_token")
        if old is not None and kwargs.get("token") is None:
            kwargs["token"] = old
        tell_once("use_auth_token", "use_auth_token is not read by current releases of transformers: passed as token")
    if "token" in kwargs:
        kwargs["token"] = none_if_empty(kwargs["token"])


def take_device_map(kwargs: dict[str, Any]) -> str | None:
    """Where `device_map` cannot be used because accelerate is missing: takes it out, and says which device to use."""
    device_map = kwargs.get("device_map")
    if device_map is None or importlib.util.find_spec("accelerate") is not None:
        return None
    del kwargs["device_map"]
    device = _torch_device(device_map)
    tell_once(
        "device_map",
        f"device_map={device_map!r} needs the package accelerate, which is not installed: the whole model was put on "
        f"'{device}'",
    )
    return device


def _torch_device(device_map: Any) -> str:
    """A device that the map names by itself, else the worker's."""
    places = set(device_map.values()) if isinstance(device_map, dict) else {device_map}
    named = str(places.pop()) if len(places) == 1 else ""
    if named.isdecimal():
        return f"cuda:{named}"
    if named.partition(":")[0] in (CPU, "cuda", "hpu"):
        return named
    own = device_of_worker()
    return CPU if own.startswith("neuron") else own
