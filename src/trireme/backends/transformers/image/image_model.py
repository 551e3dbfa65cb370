"""What the tasks of images share: images are prepared one by one, and those of one shape run together."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trireme.backends.compiled.model_load import require
from trireme.backends.transformers.image.reading import processed_images, read_image
from trireme.backends.transformers.items import Item
from trireme.backends.transformers.loading import Loaded


@dataclass(frozen=True, slots=True)
class PreparedImage:
    """An image, or what else a processor makes one row of, as the model takes it."""

    item: Item
    inputs: Mapping[str, Any]
    size: tuple[int, int]
    """Height and width of the image itself."""


class ImageModel:
    """A model that takes one image in each item."""

    def __init__(self, loaded: Loaded) -> None:
        require("PIL", "transformers")
        self._torch = loaded.torch
        self._model = loaded.model
        self._processor = loaded.processor
        self._device = loaded.device

    def prepare(self, item: Item) -> PreparedImage:
        """Takes `image`: a file's bytes, the same in base64, or an array of height, width and colours."""
        image = read_image(item.inputs.get("image"))
        return PreparedImage(item, self._processed([image]), (image.height, image.width))

    def key(self, prepared: PreparedImage) -> Hashable:
        """Images of one shape; padding others would change what the model sees."""
        return tuple(sorted((name, tuple(tensor.shape)) for name, tensor in prepared.inputs.items()))

    def _processed(self, images: Sequence[Any], **told: Any) -> dict[str, Any]:
        return processed_images(self._processor, images, **told)

    def _forward(self, prepared: Sequence[PreparedImage]) -> Any:
        return self._model(**self._batch([entry.inputs for entry in prepared]))

    def _batch(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The rows as one, on the model's device and in its precision."""
        batch = {}
        for name in rows[0]:
            tensor = self._torch.cat([row[name] for row in rows]).to(self._device)
            batch[name] = tensor.to(self._model.dtype) if tensor.is_floating_point() else tensor
        return batch
