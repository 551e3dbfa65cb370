"""What libraries return, as arrays that a response can carry."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.core.datatype import BYTES, NUMPY_DTYPE, from_numpy


def as_rows(value: Any) -> NDArray[Any]:
    """An array with a first dimension for the rows and at least one more."""
    if isinstance(value, list) and value and all(isinstance(part, np.ndarray) for part in value):
        value = np.stack(value, axis=1)  # one for each target
    elif hasattr(value, "toarray"):
        value = value.toarray()  # of scipy's sparse ones
    elif hasattr(value, "to_numpy"):
        value = value.to_numpy()
    array = np.asarray(value)
    return array.reshape(-1, 1) if array.ndim < 2 else array


def datatype_of(array: NDArray[Any]) -> str:
    """The wire name of what the array holds; strings for what has none of its own."""
    return from_numpy(array.dtype) or BYTES


def in_datatype(array: NDArray[Any], datatype: str) -> NDArray[Any]:
    """The same in the datatype that the configuration has."""
    if datatype != BYTES:
        return array.astype(NUMPY_DTYPE[datatype], copy=False)
    texts = np.empty(array.size, dtype=np.object_)
    texts[:] = [element if isinstance(element, bytes) else str(element).encode() for element in array.ravel()]
    return texts.reshape(array.shape)
