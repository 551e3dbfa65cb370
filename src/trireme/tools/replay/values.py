"""Whether two tensors hold the same: numbers within a tolerance, texts exactly or, where they are JSON, by members."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.core.datatype import BF16, BYTES, NUMPY_DTYPE
from trireme.core.elements import decode_bytes
from trireme.core.tensor import Tensor
from trireme.tools.replay.options import CompareOptions

_TOLERANCES = {"FP64": (1e-6, 1e-9), "FP32": (1e-4, 1e-6), "FP16": (1e-2, 1e-3), BF16: (2e-2, 1e-2)}
"""Relative and absolute: what another order of additions may change."""
_SHOWN_CHARACTERS = 60


def difference(before: Tensor, now: Tensor, options: CompareOptions) -> str | None:
    """What differs, in words; None where they are the same."""
    if before.datatype != now.datatype:
        return f"{before.datatype} became {now.datatype}"
    if tuple(before.shape) != tuple(now.shape):
        return f"shape {list(before.shape)} became {list(now.shape)}"
    if bytes(before.data) == bytes(now.data):
        return None
    if before.datatype == BYTES:
        return _text_difference(before, now, options)
    if len(before.data) != len(now.data):
        return f"{len(before.data)} bytes became {len(now.data)}"
    if before.datatype in _TOLERANCES:
        return _float_difference(before, now, options)
    return _integer_difference(before, now)


def _float_difference(before: Tensor, now: Tensor, options: CompareOptions) -> str | None:
    relative, absolute = _tolerance(before.datatype, options)
    left, right = _floats(before), _floats(now)
    differs = ~np.isclose(right, left, rtol=relative, atol=absolute, equal_nan=True)
    count = int(differs.sum())
    if not count:
        return None
    place = int(np.argmax(differs))
    with np.errstate(invalid="ignore"):
        largest = float(np.nanmax(np.abs(right[differs] - left[differs]))) if count else 0.0
    return (
        f"{count} of {left.size} values, the first at {_index(place, before.shape)}: {left[place]:.7g} became "
        f"{right[place]:.7g}; by {largest:.3g} at most"
    )


def _integer_difference(before: Tensor, now: Tensor) -> str:
    left = np.frombuffer(before.data, NUMPY_DTYPE[before.datatype])
    right = np.frombuffer(now.data, NUMPY_DTYPE[now.datatype])
    differs = left != right
    place = int(np.argmax(differs))
    return (
        f"{int(differs.sum())} of {left.size} values, the first at {_index(place, before.shape)}: {left[place]} became "
        f"{right[place]}"
    )


def _text_difference(before: Tensor, now: Tensor, options: CompareOptions) -> str | None:
    try:
        left, right = decode_bytes(before.data), decode_bytes(now.data)
    except ValueError as error:
        return str(error)
    for place, (old, new) in enumerate(zip(left, right, strict=False)):
        if old != new and not same_json(old, new, options):
            return f"at {_index(place, before.shape)}: {_shown(old)} became {_shown(new)}"
    return None if len(left) == len(right) else f"{len(left)} texts became {len(right)}"


def same_json(before: bytes, now: bytes, options: CompareOptions) -> bool:
    """Whether both are objects or lists of JSON that say the same, ids and times aside."""
    if before[:1] not in (b"{", b"[") or now[:1] != before[:1]:
        return False
    try:
        return _same(json.loads(before), json.loads(now), options)
    except (ValueError, RecursionError):
        return False


def _same(before: Any, now: Any, options: CompareOptions) -> bool:
    if isinstance(before, dict) and isinstance(now, dict):
        keys = (before.keys() | now.keys()) - options.ignored_keys
        return all(key in before and key in now and _same(before[key], now[key], options) for key in keys)
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(_same(old, new, options) for old, new in zip(before, now, strict=True))
    if _is_number(before) and _is_number(now) and float in (type(before), type(now)):
        relative, absolute = _tolerance("FP32", options)
        return math.isclose(before, now, rel_tol=relative, abs_tol=absolute)
    return type(before) is type(now) and bool(before == now)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _tolerance(datatype: str, options: CompareOptions) -> tuple[float, float]:
    relative, absolute = _TOLERANCES[datatype]
    return (
        relative if options.relative is None else options.relative,
        absolute if options.absolute is None else options.absolute,
    )


def _floats(tensor: Tensor) -> NDArray[np.float64]:
    if tensor.datatype == BF16:
        wide = np.frombuffer(tensor.data, "<u2").astype(np.uint32) << 16
        return wide.view(np.float32).astype(np.float64)
    return np.frombuffer(tensor.data, NUMPY_DTYPE[tensor.datatype]).astype(np.float64)


def _index(place: int, shape: tuple[int, ...] | list[int]) -> str:
    return str([int(index) for index in np.unravel_index(place, tuple(shape) or (1,))])


def _shown(text: bytes) -> str:
    whole = text.decode("utf-8", "replace")
    return repr(whole if len(whole) <= _SHOWN_CHARACTERS else whole[:_SHOWN_CHARACTERS] + "...")
