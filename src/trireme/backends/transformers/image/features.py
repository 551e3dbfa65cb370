"""Images to the vectors that a model without a head makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trireme.backends.compiled.batching import RequestError
from trireme.backends.transformers.image.image_model import ImageModel, PreparedImage
from trireme.backends.transformers.items import Outputs


class ImageFeatureExtraction(ImageModel):
    """A model whose hidden states are the answer."""

    def run(self, prepared: Sequence[PreparedImage]) -> list[Outputs]:
        """All vectors of an image, or the one that its `pool` asks for, with as many dimensions."""
        outputs = self._forward(prepared)
        is_pooled = [entry.item.options.get("pool", False) for entry in prepared]
        if any(is_pooled) and outputs.get("pooler_output") is None:
            raise RequestError(f"'pool' asks for a pooled output, which {type(self._model).__name__} does not have")
        rows: list[Outputs] = []
        for index, is_one in enumerate(is_pooled):
            found = outputs[0][index]
            if is_one:
                found = _pooled(outputs["pooler_output"][index], found.dim())
            rows.append({"features": found.float().cpu().numpy()})
        return rows


def _pooled(vector: Any, dimension_count: int) -> Any:
    """One vector among vectors, or a map of one row and one column among maps."""
    if dimension_count == 2:
        return vector.reshape(1, -1)
    return vector if vector.dim() == dimension_count else vector.reshape(-1, 1, 1)
