"""Boxes of which the less sure give way to those they overlap."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def without_overlaps(boxes: NDArray[Any], scores: NDArray[np.float32], most_overlap: float) -> NDArray[np.intp]:
    """The indices of the boxes that stay, the best first: each covers at most this part of its union with another."""
    waiting = np.argsort(-scores, kind="stable")
    corners = boxes.astype(np.float32)
    kept = []
    while waiting.size:
        best, rest = waiting[0], waiting[1:]
        kept.append(best)
        waiting = rest[~(_overlap(corners[best], corners[rest]) > most_overlap)]
    return np.array(kept, dtype=np.intp)


def _overlap(box: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[np.float32]:
    """The intersections by the unions; boxes without an area overlap nothing."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    common = np.prod(np.clip(sides, 0, None), axis=1)
    unions = _area(box[None]) + _area(others) - common
    overlap: NDArray[np.float32] = np.divide(common, unions, out=np.zeros_like(common), where=unions > 0)
    return overlap


def _area(boxes: NDArray[np.float32]) -> NDArray[np.float32]:
    area: NDArray[np.float32] = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    return area
