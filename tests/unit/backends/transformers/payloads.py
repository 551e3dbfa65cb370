"""Texts, images and sounds for the tests of this folder."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray


def text(*rows: str) -> NDArray[Any]:
    """A tensor of texts, one in each row."""
    return np.array([[row.encode()] for row in rows], dtype=np.object_)


def texts(array: NDArray[Any]) -> list[str]:
    """The texts of an output."""
    return [value.decode() if isinstance(value, bytes) else value for value in array.ravel()]


def png(seed: int, height: int = 48, width: int = 40) -> bytes:
    """A picture of coloured noise."""
    from PIL import Image

    pixels = np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def picture(content: bytes) -> Any:
    """What is in a file, for the library."""
    from PIL import Image

    return Image.open(io.BytesIO(content)).convert("RGB")


def file_of(content: bytes) -> NDArray[Any]:
    """A tensor of one file."""
    return np.array([[content]], dtype=np.object_)


def sound(seed: int, seconds: float = 1.0, rate: int = 16000) -> NDArray[np.float32]:
    """Noise with a tone in it."""
    times = np.arange(int(seconds * rate)) / rate
    noise = np.random.default_rng(seed).normal(0, 0.1, len(times))
    return (noise + 0.4 * np.sin(times * 2 * np.pi * (200 + 100 * seed))).astype(np.float32)


def wav(samples: NDArray[np.float32], rate: int = 16000, kind: int = 3, bits: int = 32) -> bytes:
    """A WAV file of one channel: floating point, or PCM (kind 1) of 8, 16, 24 or 32 bits."""
    if kind == 3:
        data = samples.astype(f"<f{bits // 8}").tobytes()
    elif bits == 8:
        data = (samples * 127 + 128).astype(np.uint8).tobytes()
    else:
        whole = (samples.astype(np.float64) * ((1 << (bits - 1)) - 1)).astype("<i4")
        data = b"".join(struct.pack("<i", int(value))[: bits // 8] for value in whole)
    form = struct.pack("<HHIIHH", kind, 1, rate, rate * bits // 8, bits // 8, bits)
    chunks = b"fmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks
