"""A model that computes in another type and looks like one of float16: what comes in and goes out is as it was."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

MARK = "_trireme_float16_wrapper"
_depth: ContextVar[int] = ContextVar("depth", default=0)  # calls of wrapped models that are under way in this thread


class Float16Wrapper:
    """Belongs to one model, whose weights are of `dtype` while it applies."""

    def __init__(self, torch: Any, dtype: Any) -> None:
        self.half, self.dtype = torch.float16, dtype
        self.is_applied = False
        self._weight: Any = None  # one of those that were changed: it tells of conversions that nobody told us about
        self._is_attached = False

    @property
    def is_active(self) -> bool:
        return self.is_applied and self._weight.dtype is self.dtype

    def apply_to(self, model: Any, weight: Any, module_class: type) -> None:
        """`weight` is one that computes in the new type from now on."""
        self._weight, self.is_applied = weight, True
        if self._is_attached:
            return
        self._is_attached = True
        for entry in _entries(model, module_class):
            entry.register_forward_pre_hook(self.before_part, with_kwargs=True)
        model.register_forward_pre_hook(self.before_model, with_kwargs=True)
        model.register_forward_hook(self.after_model, always_call=True)
        _wrap_entry_points(type(model))

    def before_part(self, module: Any, args: Any, kwargs: Any) -> Any:
        """Lets float16 in at each entry: parts of a model may be called by themselves."""
        return (self.inward(args), self.inward(kwargs)) if self.is_active else None

    def before_model(self, module: Any, args: Any, kwargs: Any) -> Any:
        _depth.set(_depth.get() + 1)
        return self.before_part(module, args, kwargs)

    def after_model(self, module: Any, args: Any, output: Any) -> Any:
        """After a failure too, with None for the output."""
        _depth.set(_depth.get() - 1)
        return self.outward(output) if self.is_active else None

    def inward(self, value: Any) -> Any:
        return cast(value, self.half, self.dtype)

    def outward(self, value: Any) -> Any:
        return cast(value, self.dtype, self.half)


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
    """The parts that code outside of a model's own `forward` calls: models within it, and the first level of each."""
    parts: dict[int, Any] = {}
    for module in model.modules():
        if isinstance(module, module_class):
            own: Any = module
            parts.update({id(part): part for part in (own, *own.children())})
    parts.pop(id(model), None)
    yield from parts.values()


def is_within() -> bool:
    """Whether a wrapped model is at work in this thread."""
    return _depth.get() > 0


def _wrap_entry_points(model_class: Any) -> None:
    """`get_image_features` and its like answer whoever calls them as the model itself does. So does `forward`, which
    wrappers of models call by itself, without the hooks."""
    for name in dir(model_class):
        if name == "forward" or (name.startswith("get_") and name.endswith("_features")):
            method = getattr(model_class, name)
            if callable(method) and not hasattr(method, MARK):
                setattr(model_class, name, _as_from_outside(method))


def _as_from_outside(method: Any) -> Any:
    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        wrapper = self.__dict__.get(MARK)
        if wrapper is None or not wrapper.is_active or is_within():
            return method(self, *args, **kwargs)
        _depth.set(1)
        try:
            return wrapper.outward(method(self, *wrapper.inward(args), **wrapper.inward(kwargs)))
        finally:
            _depth.set(0)

    setattr(call, MARK, True)
    return call
