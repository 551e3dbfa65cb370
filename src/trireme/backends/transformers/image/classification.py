"""Images to labels."""

from __future__ import annotations

from collections.abc import Sequence

from trireme.backends.transformers.image.image_model import ImageModel, PreparedImage
from trireme.backends.transformers.items import Item, Outputs
from trireme.backends.transformers.labels import best_labels, check_label_options

_TOP_COUNT = 5


class ImageClassification(ImageModel):
    """A model with a head for images."""

    def prepare(self, item: Item) -> PreparedImage:
        """Checks the options first."""
        check_label_options(item.options)
        return super().prepare(item)

    def run(self, prepared: Sequence[PreparedImage]) -> list[Outputs]:
        """The best labels of each image."""
        logits = self._forward(prepared).logits.float().cpu().numpy()
        return [
            best_labels(row, self._model.config, entry.item.options, _TOP_COUNT)
            for row, entry in zip(logits, prepared, strict=True)
        ]
