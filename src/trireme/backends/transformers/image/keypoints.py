"""Two images to the points that show the same place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trireme.backends.transformers.image.image_model import ImageModel, PreparedImage
from trireme.backends.transformers.image.ranges import fraction
from trireme.backends.transformers.image.reading import read_image
from trireme.backends.transformers.items import Item, Outputs

_THRESHOLD = 0.0


@dataclass(frozen=True, slots=True)
class _Pair(PreparedImage):
    size2: tuple[int, int]
    """Height and width of the other image."""


class KeypointMatching(ImageModel):
    """A model that finds points in two images and which of them belong together."""

    def prepare(self, item: Item) -> _Pair:
        """Takes `image` and `image2`."""
        fraction(item.options, "threshold", _THRESHOLD)
        first, second = (read_image(item.inputs.get(name), name) for name in ("image", "image2"))
        inputs = self._processed([first, second])
        return _Pair(item, inputs, (first.height, first.width), (second.height, second.width))

    def run(self, prepared: Sequence[_Pair]) -> list[Outputs]:
        """The points in both images, across and down, and how sure each match is; the best first."""
        outputs = self._forward(prepared)
        thresholds = [entry.item.options.get("threshold", _THRESHOLD) for entry in prepared]
        sizes = [(entry.size, entry.size2) for entry in prepared]
        found = self._processor.post_process_keypoint_matching(outputs, sizes, min(thresholds))
        return [_outputs(entry, threshold) for entry, threshold in zip(found, thresholds, strict=True)]


def _outputs(found: dict[str, Any], threshold: float) -> Outputs:
    scores = found["matching_scores"].float().cpu().numpy().astype(np.float32)
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > threshold]
    points = [found[name].cpu().numpy().astype(np.int32).reshape(-1, 2)[order] for name in ("keypoints0", "keypoints1")]
    return {"keypoint_image_0": points[0], "keypoint_image_1": points[1], "score": scores[order]}
