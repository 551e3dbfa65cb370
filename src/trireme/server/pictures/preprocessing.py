"""A picture of Pillow to the tensor that a configuration declares; runs in decoder processes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.config.picture_parameters import PictureConfig
from trireme.core.datatype import NUMPY_DTYPE


def tensor_of(picture: Any, config: PictureConfig) -> NDArray[Any]:
    """Turned upright as its camera noted, resized, cut or padded, scaled, and laid out."""
    from PIL import ImageOps

    upright = ImageOps.exif_transpose(picture).convert("L" if config.colors == "gray" else "RGB")
    return _as_tensor(np.asarray(_sized(upright, config)), config)


def _sized(picture: Any, config: PictureConfig) -> Any:
    from PIL import Image

    kind = Image.Resampling[config.filter.upper()]
    height, width = config.height, config.width
    if config.pad is not None:
        return _padded(picture, config, kind)
    if config.resize is None:
        return picture.resize((width, height), kind)
    if len(config.resize) == 2:
        resized = picture.resize((config.resize[1], config.resize[0]), kind)
    else:
        resized = picture.resize(_with_shorter_side(picture.size, config.resize[0], config.max_pixels), kind)
    left, top = round((resized.width - width) / 2), round((resized.height - height) / 2)
    return resized.crop((left, top, left + width, top + height))


def _with_shorter_side(size: tuple[int, int], shorter: int, max_pixels: int) -> tuple[int, int]:
    """Raises ValueError where a picture is so much longer than wide, or wider than long, that it would be too large."""
    width, height = size
    longer = max(shorter * max(size) // min(size), shorter)
    if shorter * longer > max_pixels:
        raise ValueError(
            f"its {width}x{height} pixels would be more than the {max_pixels} allowed (parameter 'image_max_pixels') "
            f"once its shorter side has {shorter}"
        )
    return (shorter, longer) if width <= height else (longer, shorter)


def _padded(picture: Any, config: PictureConfig, kind: Any) -> Any:
    from PIL import Image

    factor = min(config.width / picture.width, config.height / picture.height)
    size = (max(round(picture.width * factor), 1), max(round(picture.height * factor), 1))
    resized = picture.resize(size, kind)
    around = int(config.pad or 0)
    canvas = Image.new(picture.mode, (config.width, config.height), (around,) * len(picture.getbands()))
    canvas.paste(resized, ((config.width - size[0]) // 2, (config.height - size[1]) // 2))
    return canvas


def _as_tensor(pixels: NDArray[Any], config: PictureConfig) -> NDArray[Any]:
    values: NDArray[Any] = pixels.reshape(config.height, config.width, config.channels).astype(np.float32)
    if config.colors == "bgr":
        values = values[:, :, ::-1]
    values = values * np.float32(config.scale) - np.array(config.mean, dtype=np.float32)
    values = values / np.array(config.deviation, dtype=np.float32)
    if config.is_channel_first:
        values = values.transpose(2, 0, 1)
    kind: np.dtype[Any] = NUMPY_DTYPE[config.datatype]
    if kind.kind in "iu":
        bounds = np.iinfo(kind)
        values = np.clip(np.rint(values.astype(np.float64)), bounds.min, bounds.max)
    return values.astype(kind)
