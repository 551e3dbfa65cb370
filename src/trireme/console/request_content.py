"""What was in a recorded request and its answer, as the page shows it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from typing import Any

from trireme.core.call_excerpt import CallExcerpt, TensorExcerpt


def content_of(excerpt: CallExcerpt) -> dict[str, Any]:
    """Tensors with the first of their bytes, which the page reads as it reads answers."""
    return {
        "inputs": _tensors(excerpt.inputs),
        "parameters": excerpt.parameters,
        "note": excerpt.note,
        "responses": [_tensors(response) for response in excerpt.responses],
        "response_count": excerpt.response_count,
    }


def _tensors(tensors: Iterable[TensorExcerpt]) -> list[dict[str, Any]]:
    return [
        {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": tensor.shape,
            "size_bytes": tensor.size_bytes,
            "data": b64encode(tensor.data).decode(),
        }
        for tensor in tensors
    ]
