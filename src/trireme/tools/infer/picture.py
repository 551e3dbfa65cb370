"""Pictures as pixels in the layout of a model's input, and pixels as PNG files."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.tools.client.errors import InputError
from trireme.tools.infer.png import PngError, decode_png, encode_png
from trireme.tools.perf.model import TensorSpec

PICTURE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff"})

Pixels = NDArray[np.uint8]
"""Rows, columns, channels."""

_CHANNELS = (1, 3, 4)


def read_picture(content: bytes, name: str) -> Pixels:
    """PNG by ourselves, other formats where Pillow is installed. Raises InputError."""
    try:
        return decode_png(content)
    except PngError as error:
        reason = str(error)
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise InputError(f"'{name}' cannot be decoded: {reason}; with Pillow installed other formats can") from None
    try:
        with Image.open(io.BytesIO(content)) as image:
            has_alpha = "A" in image.getbands() or "transparency" in image.info
            mode = "RGBA" if has_alpha else "L" if image.mode in ("1", "L") else "RGB"
            pixels = np.asarray(image.convert(mode), np.uint8)
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError, SyntaxError) as error:
        raise InputError(f"'{name}' is no picture that can be read: {error}") from None
    return pixels.reshape(*pixels.shape[:2], -1)


def pixels_for(spec: TensorSpec, pixels: Pixels, name: str) -> NDArray[Any]:
    """The picture as the input's shape has it: channels first or last, or none; from 0 to 1 for floating point."""
    dims = spec.shape[1:] if len(spec.shape) == 4 else spec.shape
    is_first = len(dims) == 3 and dims[0] in _CHANNELS and dims[2] not in _CHANNELS
    wanted = 1 if len(dims) == 2 else dims[0] if is_first else dims[2] if dims[2] in _CHANNELS else 3
    arranged: NDArray[Any] = _with_channels(pixels, wanted)
    if len(dims) == 2:
        arranged = arranged[:, :, 0]
    elif is_first:
        arranged = arranged.transpose(2, 0, 1)
    if any(want not in (-1, have) for want, have in zip(dims, arranged.shape, strict=True)):
        height, width = pixels.shape[:2]
        raise InputError(
            f"'{name}' is a picture of {width} x {height} pixels, and input '{spec.name}' takes {list(spec.shape)}: "
            "bring it to that size first"
        )
    if spec.datatype.startswith(("FP", "BF")):
        arranged = arranged.astype(np.float32) / 255
    return arranged[np.newaxis] if len(spec.shape) == 4 else arranged


def write_picture(array: NDArray[Any], name: str) -> bytes:
    """A PNG file of UINT8 pixels, or of floating point from 0 to 1; channels first or last. Raises InputError."""
    pixels = np.asarray(array)
    while pixels.ndim > 3 and pixels.shape[0] == 1:
        pixels = pixels[0]
    if pixels.ndim == 3 and pixels.shape[2] not in _CHANNELS and pixels.shape[0] in _CHANNELS:
        pixels = pixels.transpose(1, 2, 0)
    if pixels.dtype.kind == "f":
        pixels = np.clip(np.round(pixels.astype(np.float32) * 255), 0, 255).astype(np.uint8)
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] not in _CHANNELS):
        raise InputError(f"'{name}': {array.dtype} {list(array.shape)} is no picture; .npy holds every array")
    return encode_png(pixels)


def _with_channels(pixels: Pixels, wanted: int) -> Pixels:
    """Grey becomes coloured, colours grey (by their brightness), and what is opaque stays so."""
    have = pixels.shape[2]
    colours, alpha = (pixels[:, :, :-1], pixels[:, :, -1:]) if have in (2, 4) else (pixels, None)
    if wanted == 1 and colours.shape[2] == 3:
        grey = colours @ np.array([0.299, 0.587, 0.114])
        rounded: Pixels = np.round(grey).astype(np.uint8)
        return rounded[:, :, np.newaxis]
    if wanted > 1 and colours.shape[2] == 1:
        colours = colours.repeat(3, axis=2)
    if wanted == 4:
        opaque = np.full((*pixels.shape[:2], 1), 255, np.uint8) if alpha is None else alpha
        return np.concatenate([colours, opaque], axis=2)
    return colours
