"""Images to how far away everything in them is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.backends.transformers.image.image_model import ImageModel, PreparedImage
from trireme.backends.transformers.items import Outputs

_WHITE = 255


class DepthEstimation(ImageModel):
    """A model that tells the depth of every pixel."""

    def run(self, prepared: Sequence[PreparedImage]) -> list[Outputs]:
        """The depth in the image's own size, as the model measures it and as a picture in grey."""
        outputs = self._forward(prepared)
        # By position: it is called otherwise where the depth is first cut out of a padded image.
        found = self._processor.post_process_depth_estimation(outputs, [entry.size for entry in prepared])
        return [_outputs(entry["predicted_depth"].float().cpu().numpy()) for entry in found]


def _outputs(depth: NDArray[Any]) -> Outputs:
    least, most = depth.min(), depth.max()
    scale = most - least if most > least else np.float32(1)  # a depth that is the same everywhere is black
    picture = ((depth - least) / scale * _WHITE).astype(np.uint8)
    return {"predicted_depth": depth.astype(np.float32), "depth": picture}
