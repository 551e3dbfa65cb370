"""A model that was converted from float16 takes tensors of float16 from a file that goes on to make them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

_MARK = "_trireme_takes_float16"


def accept_float16(torch: Any, model: Any, weight: Any, model_class: type) -> None:
    """Lets float16 in wherever code outside of the model's own `forward` calls it: parts may be called by themselves.
    `weight` is one of those that were converted, and tells the type of the moment."""
    if _MARK in model.__dict__:
        model.__dict__[_MARK].weight = weight
        return
    cast_inputs = model.__dict__[_MARK] = _Cast(torch.float16, weight)
    for entry in _entries(model, model_class):
        entry.register_forward_pre_hook(cast_inputs.before, with_kwargs=True)


class _Cast:
    """Belongs to one model, and is copied with it."""

    def __init__(self, half: Any, weight: Any) -> None:
        self.half = half
        self.weight = weight

    def before(self, module: Any, args: Any, kwargs: Any) -> Any:
        dtype = self.weight.dtype
        if dtype is self.half:
            return None
        return cast(args, self.half, dtype), cast(kwargs, self.half, dtype)


def cast(value: Any, old: Any, new: Any) -> Any:
    """The value with new tensors for those of the old type in it; itself where it has none. Caches of keys and values
    are neither: they stay with the model."""
    if hasattr(value, "dtype") and hasattr(value, "is_floating_point"):
        return value.to(new) if value.dtype is old else value
    if isinstance(value, dict):
        changed = {key: now for key, item in value.items() if (now := cast(item, old, new)) is not item}
        if not changed:
            return value
        value = copy.copy(value)
        for key, item in changed.items():
            value[key] = item
    elif type(value) in (tuple, list):
        items = [cast(item, old, new) for item in value]
        if any(now is not item for now, item in zip(items, value, strict=True)):
            return type(value)(items)
    return value


def _entries(model: Any, module_class: type) -> Iterator[Any]:
    """The model, models within it, and the first level of each."""
    parts: dict[int, Any] = {}
    for module in model.modules():
        if isinstance(module, module_class):
            own: Any = module
            parts.update({id(part): part for part in (own, *own.children())})
    yield from parts.values()
