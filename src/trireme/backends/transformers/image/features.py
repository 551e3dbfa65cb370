"""Images to the vectors that a model without a head makes of them."""

from __future__ import annotations

from collections.abc import Sequence

from trireme.backends.compiled.batching import RequestError
from trireme.backends.transformers.image.image_model import ImageModel, PreparedImage
from trireme.backends.transformers.items import Outputs


class ImageFeatureExtraction(ImageModel):
    """A model whose hidden states are the answer."""

    def run(self, prepared: Sequence[PreparedImage]) -> list[Outputs]:
        """All vectors of an image, or the one that its `pool` asks for."""
        outputs = self._forward(prepared)
        is_pooled = [entry.item.options.get("pool", False) for entry in prepared]
        if any(is_pooled) and outputs.get("pooler_output") is None:
            raise RequestError(f"'pool' asks for a pooled output, which {type(self._model).__name__} does not have")
        rows: list[Outputs] = []
        for index, is_one in enumerate(is_pooled):
            found = outputs["pooler_output"][index].reshape(1, -1) if is_one else outputs[0][index]
            rows.append({"features": found.float().cpu().numpy()})
        return rows
