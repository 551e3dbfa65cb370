"""Images out of requests: a file's bytes, the same in base64, or an array."""

from __future__ import annotations

import importlib
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from trireme.backends.compiled.batching import RequestError
from trireme.backends.transformers.file_content import file_content

SHOWN_BYTES = 16


def read_image(given: Any, name: str = "image") -> Any:
    """The image in red, green and blue; raises RequestError where there is none in it."""
    pillow = importlib.import_module("PIL.Image")
    if given is None:
        raise RequestError(f"input '{name}' is missing")
    if isinstance(given, np.ndarray):
        if given.ndim != 3 or given.size == 0 or given.shape[2] not in (1, 3, 4):
            raise RequestError(
                f"input '{name}' must have height, width and 1, 3 or 4 colours, its shape is {given.shape}"
            )
        return pillow.fromarray(given[..., 0] if given.shape[2] == 1 else given).convert("RGB")
    content = file_content(given)
    try:
        image = pillow.open(io.BytesIO(content))
        return importlib.import_module("PIL.ImageOps").exif_transpose(image).convert("RGB")  # upright, as it was taken
    except Exception as error:  # Pillow raises what the format's decoder raises
        start = content[:SHOWN_BYTES]
        raise RequestError(
            f"input '{name}' ({len(content)} bytes, beginning {start!r}) could not be read as an image: "
            f"{_reason(error)}; send the bytes of a file such as PNG or JPEG, or those in base64"
        ) from error


def processed_images(processor: Any, images: Sequence[Any], **told: Any) -> dict[str, Any]:
    """What a model's processor makes of images; raises RequestError for those that it does not take, such as one that
    is too small, or so narrow that nothing of it is left in the model's size."""
    try:
        return dict(processor(images=list(images), return_tensors="pt", **told))
    except ValueError as error:
        raise RequestError(f"the image cannot be prepared for the model: {error}") from error


def _reason(error: Exception) -> str:
    """Without the address of the buffer that Pillow names where a file has no name."""
    is_unknown = type(error).__name__ == "UnidentifiedImageError"
    return "it is of no known format" if is_unknown else str(error)
