"""Images to the objects in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trireme.backends.transformers.image.image_model import ImageModel, PreparedImage
from trireme.backends.transformers.image.ranges import fraction
from trireme.backends.transformers.items import Item, Outputs, text_array

_THRESHOLD = 0.5


class ObjectDetection(ImageModel):
    """A model that finds objects and their places."""

    def prepare(self, item: Item) -> PreparedImage:
        """Checks the options first."""
        fraction(item.options, "threshold", _THRESHOLD)
        return super().prepare(item)

    def run(self, prepared: Sequence[PreparedImage]) -> list[Outputs]:
        """Label, score and corners (left, top, right, bottom) of every object above the threshold."""
        outputs = self._forward(prepared)
        sizes = self._torch.tensor([entry.size for entry in prepared], device=self._device)
        thresholds = [entry.item.options.get("threshold", _THRESHOLD) for entry in prepared]
        found = self._processor.post_process_object_detection(outputs, min(thresholds), sizes)
        return [self._objects(entry, limit) for entry, limit in zip(found, thresholds, strict=True)]

    def _objects(self, found: Mapping[str, Any], threshold: float) -> Outputs:
        is_kept = found["scores"] > threshold
        labels = found["labels"][is_kept].tolist()
        return {
            "label": text_array([str(self._model.config.id2label[label]) for label in labels]),
            "score": found["scores"][is_kept].float().cpu().numpy().astype(np.float32),
            "box": found["boxes"][is_kept].float().int().cpu().numpy().astype(np.int32).reshape(-1, 4),
        }
