"""WAV files as samples, and samples as WAV files."""

from __future__ import annotations

import io
import wave
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.tools.client.errors import InputError

SOUND_SUFFIXES = frozenset({".wav", ".wave"})


def read_samples(content: bytes, name: str, datatype: str) -> NDArray[Any]:
    """The mean of the channels: from -1 to 1 for floating point, of 16 or 32 bits for integers. Raises InputError."""
    try:
        with wave.open(io.BytesIO(content)) as sound:
            width, channels = sound.getsampwidth(), sound.getnchannels()
            samples = _samples(sound.readframes(sound.getnframes()), width)
    except (wave.Error, EOFError, ValueError) as error:
        raise InputError(f"'{name}' is no WAV file with whole numbers as samples: {error}") from None
    mono: NDArray[Any] = samples[: len(samples) // channels * channels].reshape(-1, channels).mean(axis=1)
    if datatype.startswith(("FP", "BF")):
        return mono
    bits = {"INT16": 15, "INT32": 31}.get(datatype)
    if bits is None:
        raise InputError(f"samples of '{name}' cannot be sent as {datatype}; floating point, INT16 and INT32 can")
    whole: NDArray[Any] = np.clip(np.round(mono * 2**bits), -(2**bits), 2**bits - 1).astype(np.int64)
    return whole


def write_samples(samples: NDArray[Any], rate: int) -> bytes:
    """A WAV file of one channel with 16 bits; floating point is from -1 to 1. Raises InputError."""
    flat = np.asarray(samples).ravel()
    if flat.dtype.kind == "f":
        flat = np.clip(np.round(flat.astype(np.float64) * 2**15), -(2**15), 2**15 - 1)
    elif flat.dtype != np.int16:
        raise InputError(f"a WAV file is made of floating point or INT16, and the output is {flat.dtype}")
    target = io.BytesIO()
    with wave.open(target, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        sound.writeframes(flat.astype("<i2").tobytes())
    return target.getvalue()


def _samples(frames: bytes, width: int) -> NDArray[Any]:
    """From -1 to 1; raises ValueError for samples of another size."""
    if width > 4:
        raise ValueError(f"it has samples of {8 * width} bits")
    if width == 1:
        return (np.frombuffer(frames, np.uint8).astype(np.float64) - 128) / 128
    if width == 3:
        padded = np.zeros((len(frames) // 3, 4), np.uint8)
        padded[:, 1:] = np.frombuffer(frames, np.uint8).reshape(-1, 3)
        return padded.view("<i4").ravel() / 2**31
    return np.frombuffer(frames, f"<i{width}") / float(2 ** (8 * width - 1))
