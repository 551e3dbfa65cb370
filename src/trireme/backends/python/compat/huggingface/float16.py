"""Models that are loaded in float16 and stay on a CPU that is slow with it: on request they are converted.

The weights are rounded to float16 first, as the file asked, so that results differ by rounding only. From then on the
model is one of the other type in all it says and gives, and takes tensors of float16 all the same. Where there is an
accelerator nothing is done: the model may be on its way there."""

from __future__ import annotations

import functools
import sys
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from trireme.backends.python.compat import switches
from trireme.backends.python.compat.huggingface.float16_choice import SLOW, WORD, WORDS, choose
from trireme.backends.python.compat.huggingface.float16_inputs import accept_float16
from trireme.backends.python.compat.report import tell_change, tell_offer
from trireme.backends.python.worker_device import CPU, device_of_worker
from trireme.machine.cpu_arithmetic import emulates

__all__ = ["WORDS", "compute_in_faster_type"]

_MARK = "_trireme_loaded"  # of a model that came from the library's files, and of no part of one
_is_loading: ContextVar[bool] = ContextVar("is_loading", default=False)


def compute_in_faster_type(module: ModuleType) -> None:
    """In `transformers.modeling_utils`: when a model has been loaded, and when it is converted later."""
    model_class = module.PreTrainedModel
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
        model.__dict__[_MARK] = True
        _settle(model, model_class, convert)
        return loaded

    @functools.wraps(convert)
    def _apply(self: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        converted = convert(self, function, *args, **kwargs)
        if _MARK in self.__dict__ and not _is_loading.get():
            _settle(self, model_class, convert)
        return converted

    model_class.from_pretrained = classmethod(from_pretrained)
    model_class._apply = _apply


def _settle(model: Any, model_class: type, convert: Any) -> None:
    """Converts what is of float16 in a model that nothing but the CPU can compute, or says that it could be done."""
    torch: Any = sys.modules["torch"]
    weights = list(model.parameters())
    halves = [index for index, weight in enumerate(weights) if weight.dtype is torch.float16]
    if not halves or not _is_for_cpu_alone(torch, model, weights):
        return
    name = type(model).__name__
    if not switches.is_asked_for(*WORDS):
        if switches.may_rescue() and emulates("float16"):
            how = f"--compat={WORD}, or the parameter 'compat' with '{WORD}' in its config.pbtxt"
            tell_offer(WORD, f"{name} was loaded in float16, {SLOW}; {how}, computes it in a faster type")
        return
    choice = choose(sum(2 * weights[index].numel() for index in halves))
    if choice.name == "float16":
        if choice.reason:
            tell_change(WORD, f"{name} was loaded in float16, {choice.reason}: it stays as it is", choice.word)
        return
    dtype = getattr(torch, choice.name)
    convert(model, lambda tensor: tensor.to(dtype) if tensor.dtype is torch.float16 else tensor)
    accept_float16(torch, model, list(model.parameters())[halves[0]], model_class)
    done = f"it is a model of {choice.name} now, with the same weights, which takes float16 too"
    tell_change(WORD, f"{name} was loaded in float16, {choice.reason}: {done}", choice.word)


def _is_for_cpu_alone(torch: Any, model: Any, weights: list[Any]) -> bool:
    if device_of_worker() != CPU or getattr(model, "is_quantized", False):
        return False
    accelerator = getattr(torch, "accelerator", None)  # of newer releases, and of all kinds
    if torch.cuda.is_available() or (accelerator is not None and accelerator.is_available()):
        return False
    return all(weight.device.type == CPU for weight in weights)
