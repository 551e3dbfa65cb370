"""Models that are loaded in float16 and stay on a CPU that is slow with it compute in float32, with the same weights.

The weights are rounded to float16 first, as the model asked, so that results differ by rounding only. Where there is an
accelerator nothing is done: the model may be on its way there."""

from __future__ import annotations

import functools
import inspect
import sys
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from trireme.backends.python.compat.huggingface.float16_choice import VARIABLE, Choice, choose
from trireme.backends.python.compat.huggingface.float16_wrapper import MARK, Float16Wrapper, is_within
from trireme.backends.python.compat.report import tell_once
from trireme.backends.python.worker_device import CPU, device_of_worker

_LIBRARY = ("transformers", "transformers_modules")  # the second is code that comes with a model
_is_loading: ContextVar[bool] = ContextVar("is_loading", default=False)


def compute_in_faster_type(module: ModuleType) -> None:
    """In `transformers.modeling_utils`: when a model has been loaded, and when it is converted later."""
    model_class = module.PreTrainedModel
    if "always_call" not in inspect.signature(model_class.register_forward_hook).parameters:
        return  # PyTorch before 2.1
    load = model_class.__dict__["from_pretrained"].__func__
    convert = model_class._apply

    @functools.wraps(load)
    def from_pretrained(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if _is_loading.get():  # a part of the model that is being loaded
            return load(cls, *args, **kwargs)
        token = _is_loading.set(True)
        try:
            loaded = load(cls, *args, **kwargs)
        finally:
            _is_loading.reset(token)
        model = loaded[0] if isinstance(loaded, tuple) else loaded  # with output_loading_info
        model.__dict__.setdefault(MARK, None)
        _settle(model, model_class, convert)
        return loaded

    @functools.wraps(convert)
    def _apply(self: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        converted = convert(self, function, *args, **kwargs)
        if MARK in self.__dict__ and not _is_loading.get():
            wrapper = self.__dict__[MARK]
            if wrapper is not None and function(_torch().zeros(1, dtype=wrapper.half)).dtype is not wrapper.half:
                wrapper.is_applied = False  # another type was asked for
            _settle(self, model_class, convert)
        return converted

    model_class.from_pretrained = classmethod(from_pretrained)
    model_class._apply = _apply
    model_class.dtype = _apparent_dtype(model_class.dtype)


def _apparent_dtype(own: Any) -> Any:
    """What `model.dtype` says: to the file the type that the model takes and gives, so that a layer of the file's own
    with this type fits behind it, and to the model's own code the type that is computed in."""

    def dtype(self: Any) -> Any:
        wrapper = self.__dict__.get(MARK)
        if wrapper is None or not wrapper.is_active or is_within():
            return own.fget(self)
        asking = str(sys._getframe(1).f_globals.get("__name__")).partition(".")[0]
        return own.fget(self) if asking in _LIBRARY else wrapper.half

    return property(dtype, doc=own.__doc__)


def _settle(model: Any, model_class: type, convert: Any) -> None:
    """Converts what is of float16 in a model that nothing but the CPU can compute."""
    if device_of_worker() != CPU or getattr(model, "is_quantized", False):
        return
    torch = _torch()
    weights = list(model.parameters())
    halves = [index for index, weight in enumerate(weights) if weight.dtype is torch.float16]
    if not halves or any(weight.device.type != CPU for weight in weights) or _has_accelerator(torch):
        return
    size_bytes = sum(2 * weights[index].numel() for index in halves)
    choice = choose(size_bytes)
    if choice.reason:
        _tell(type(model).__name__, choice)
    if choice.name == "float16":
        return
    dtype = getattr(torch, choice.name)
    wrapper = model.__dict__[MARK] or Float16Wrapper(torch, dtype)
    wrapper.dtype = dtype
    convert(model, lambda tensor: tensor.to(dtype) if tensor.dtype is torch.float16 else tensor)
    wrapper.apply_to(model, list(model.parameters())[halves[0]], model_class)
    model.__dict__[MARK] = wrapper


def _has_accelerator(torch: Any) -> bool:
    accelerator = getattr(torch, "accelerator", None)  # of newer releases, and of all kinds
    return bool(torch.cuda.is_available() or (accelerator is not None and accelerator.is_available()))


def _torch() -> Any:
    return sys.modules["torch"]


def _tell(model_name: str, choice: Choice) -> None:
    done = f"it computes in {choice.name}, from the same weights, and takes and gives float16 as before"
    other = f"{VARIABLE}=float16 keeps float16"
    if choice.name == "float16":
        done, other = "it stays as it is", f"{VARIABLE}=float32 converts it all the same"
    tell_once("float16", f"{model_name} was loaded in float16, {choice.reason}: {done}; {other}")
