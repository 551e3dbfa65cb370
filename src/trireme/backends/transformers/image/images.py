"""Images to labels, and to the objects in them."""

from __future__ import annotations

import importlib
import io
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trireme.backends.compiled.batching import RequestError
from trireme.backends.compiled.model_load import require
from trireme.backends.transformers.file_content import file_content
from trireme.backends.transformers.items import Item, Outputs, text_array
from trireme.backends.transformers.labels import best_labels, check_label_options
from trireme.backends.transformers.loading import Loaded

_TOP_COUNT = 5
_THRESHOLD = 0.5
_SHOWN_BYTES = 16


@dataclass(frozen=True, slots=True)
class _Image:
    item: Item
    inputs: Mapping[str, Any]
    size: tuple[int, int]
    """Height and width of the image itself."""


class _ImageModel:
    """Decodes and prepares images one by one; those that come out in one shape run together."""

    def __init__(self, loaded: Loaded) -> None:
        require("PIL", "transformers")
        self._torch = loaded.torch
        self._model = loaded.model
        self._processor = loaded.processor
        self._device = loaded.device

    def prepare(self, item: Item) -> _Image:
        """Takes `image`: a file's bytes, the same in base64, or an array of height, width and colours."""
        image = read_image(item.inputs.get("image"))
        inputs = self._processor(images=[image], return_tensors="pt")
        return _Image(item, dict(inputs), (image.height, image.width))

    def key(self, prepared: _Image) -> Hashable:
        """Images of one shape; padding others would change what the model sees."""
        return tuple(sorted((name, tuple(tensor.shape)) for name, tensor in prepared.inputs.items()))

    def _forward(self, prepared: Sequence[_Image]) -> Any:
        batch = {}
        for name in prepared[0].inputs:
            tensor = self._torch.cat([entry.inputs[name] for entry in prepared]).to(self._device)
            batch[name] = tensor.to(self._model.dtype) if tensor.is_floating_point() else tensor
        return self._model(**batch)


class ImageClassification(_ImageModel):
    """A model with a head for images."""

    def prepare(self, item: Item) -> _Image:
        """Checks the options first."""
        check_label_options(item.options)
        return super().prepare(item)

    def run(self, prepared: Sequence[_Image]) -> list[Outputs]:
        """The best labels of each image."""
        logits = self._forward(prepared).logits.float().cpu().numpy()
        return [
            best_labels(row, self._model.config, entry.item.options, _TOP_COUNT)
            for row, entry in zip(logits, prepared, strict=True)
        ]


class ObjectDetection(_ImageModel):
    """A model that finds objects and their places."""

    def prepare(self, item: Item) -> _Image:
        """Checks the options first."""
        threshold = item.options.get("threshold", _THRESHOLD)
        if not 0 <= threshold <= 1:
            raise RequestError(f"'threshold' must be from 0 to 1, found {threshold}")
        return super().prepare(item)

    def run(self, prepared: Sequence[_Image]) -> list[Outputs]:
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


def read_image(given: Any) -> Any:
    """The image in red, green and blue; raises RequestError where there is none in it."""
    pillow = importlib.import_module("PIL.Image")
    if given is None:
        raise RequestError("input 'image' is missing")
    if isinstance(given, np.ndarray):
        if given.ndim != 3 or given.size == 0 or given.shape[2] not in (1, 3, 4):
            raise RequestError(
                f"input 'image' must have height, width and 1, 3 or 4 colours, its shape is {given.shape}"
            )
        return pillow.fromarray(given[..., 0] if given.shape[2] == 1 else given).convert("RGB")
    content = file_content(given)
    try:
        image = pillow.open(io.BytesIO(content))
        return importlib.import_module("PIL.ImageOps").exif_transpose(image).convert("RGB")  # upright, as it was taken
    except Exception as error:  # Pillow raises what the format's decoder raises
        start = content[:_SHOWN_BYTES]
        raise RequestError(
            f"input 'image' ({len(content)} bytes, beginning {start!r}) could not be read as an image: "
            f"{_reason(error)}; send the bytes of a file such as PNG or JPEG, or those in base64"
        ) from error


def _reason(error: Exception) -> str:
    """Without the address of the buffer that Pillow names where a file has no name."""
    is_unknown = type(error).__name__ == "UnidentifiedImageError"
    return "it is of no known format" if is_unknown else str(error)
