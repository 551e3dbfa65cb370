"""Sound as samples: out of arrays, WAV files, or with the soundfile package other files, at the rate a model wants; and
as a WAV file again."""

from __future__ import annotations

import base64
import importlib
import importlib.util
import io
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.backends.compiled.batching import RequestError
from trireme.backends.transformers.file_content import file_content

Samples = NDArray[np.float32]
RAW, BASE64 = "raw", "base64"
_LOUDEST = 32767
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_LOWEST_RATE = 1000  # what is below is no sound, and would become thousands of times as long at a model's rate


def read_audio(given: Any, wanted_rate: int, given_rate: int | None) -> Samples:
    """One channel at the wanted rate; `given_rate` is that of an array, the wanted one if None."""
    if given is None:
        raise RequestError("input 'audio' is missing")
    if isinstance(given, np.ndarray):
        samples = np.asarray(given, dtype=np.float32)
        rate = wanted_rate if given_rate is None else given_rate
    else:
        samples, rate = _read_file(file_content(given))
    if rate < _LOWEST_RATE:
        raise RequestError(f"input 'audio' must have at least {_LOWEST_RATE} samples per second, found {rate}")
    if samples.ndim == 2:
        samples = samples.mean(axis=1)
    if samples.ndim != 1 or samples.size == 0:
        raise RequestError(f"input 'audio' has no samples (its shape is {samples.shape})")
    if not np.isfinite(samples).all():
        raise RequestError("input 'audio' has samples that are not numbers")
    return resampled(samples, rate, wanted_rate)


def resampled(samples: Samples, rate: int, wanted_rate: int) -> Samples:
    """The same sound at another rate, without what the lower of both rates cannot carry."""
    if rate == wanted_rate:
        return samples
    count = max(1, round(len(samples) * wanted_rate / rate))
    spectrum = np.fft.rfft(samples)
    bins = count // 2 + 1
    fitted = np.zeros(bins, dtype=spectrum.dtype)
    kept = min(bins, len(spectrum))
    fitted[:kept] = spectrum[:kept]
    return (np.fft.irfft(fitted, count) * (count / len(samples))).astype(np.float32)


def wav_file(samples: Samples, rate: int) -> bytes:
    """A WAV file of 16 bits, which everything plays; `samples` has one dimension, or channels in front of it."""
    channels = np.atleast_2d(samples)
    whole = np.round(np.clip(channels.T, -1.0, 1.0) * _LOUDEST).astype("<i2")
    width = 2 * channels.shape[0]
    form = struct.pack("<HHIIHH", _PCM, channels.shape[0], rate, rate * width, width, 16)
    data = whole.tobytes()
    chunks = struct.pack("<4sI", b"fmt ", len(form)) + form + struct.pack("<4sI", b"data", len(data)) + data
    return struct.pack("<4sI4s", b"RIFF", 4 + len(chunks), b"WAVE") + chunks


def sound_outputs(samples: Samples, rate: int, encoding: str) -> dict[str, NDArray[Any]]:
    """What a model that makes sound answers with."""
    file = wav_file(samples, rate)
    outputs = {"waveform": samples, "sampling_rate": np.array([rate], np.int32)}
    return {"audio": _file_array(base64.b64encode(file) if encoding == BASE64 else file), **outputs}


def audio_encoding(options: Mapping[str, Any]) -> str:
    """How the file is sent, since JSON cannot carry bytes; raises RequestError."""
    found = str(options.get("audio_encoding", RAW))
    if found not in (RAW, BASE64):
        raise RequestError(f"'audio_encoding' must be {RAW} or {BASE64}, found '{found}'")
    return found


def _file_array(content: bytes) -> NDArray[Any]:
    """The bytes of a file as a tensor has them."""
    array = np.empty(1, dtype=np.object_)
    array[0] = content
    return array


def _read_file(content: bytes) -> tuple[Samples, int]:
    if content[:4] == b"RIFF" and content[8:12] == b"WAVE":
        try:
            return _read_wav(content)
        except (struct.error, KeyError, ValueError) as error:
            raise RequestError(f"input 'audio' is a WAV file that cannot be read: {error}") from error
    return _read_other(content)


def _read_wav(content: bytes) -> tuple[Samples, int]:
    chunks: dict[bytes, bytes] = {}
    place = 12
    while place + 8 <= len(content):
        name, size = struct.unpack_from("<4sI", content, place)
        chunks.setdefault(name, content[place + 8 : place + 8 + size])
        place += 8 + size + size % 2
    if b"fmt " not in chunks or b"data" not in chunks:
        raise ValueError("it has no format or no data")
    kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", chunks[b"fmt "])
    if kind == _EXTENSIBLE:
        (kind,) = struct.unpack_from("<H", chunks[b"fmt "], 24)
    if rate < 1 or channels < 1:
        raise ValueError(f"it has {channels} channels at {rate} samples per second")
    samples = _samples(kind, bits, chunks[b"data"])
    return samples[: len(samples) // channels * channels].reshape(-1, channels), rate


def _samples(kind: int, bits: int, data: bytes) -> Samples:
    width = bits // 8
    data = data[: len(data) // width * width] if width else b""
    if kind == _FLOAT and bits in (32, 64):
        return np.frombuffer(data, dtype=f"<f{width}").astype(np.float32)
    if kind == _PCM and bits == 8:  # the one width that is unsigned
        return ((np.frombuffer(data, dtype=np.uint8) - 128.0) / 128).astype(np.float32)
    if kind == _PCM and bits in (16, 32):
        return (np.frombuffer(data, dtype=f"<i{width}") / float(1 << (bits - 1))).astype(np.float32)
    if kind == _PCM and bits == 24:
        wide = np.zeros((len(data) // 3, 4), dtype=np.uint8)
        wide[:, 1:] = np.frombuffer(data, dtype=np.uint8).reshape(-1, 3)
        return (wide.view("<i4").ravel() / float(1 << 31)).astype(np.float32)
    raise ValueError(f"format {kind} with {bits} bits is neither PCM nor floating point")


def _read_other(content: bytes) -> tuple[Samples, int]:
    about = f"input 'audio' ({len(content)} bytes, beginning {content[:12]!r})"
    if importlib.util.find_spec("soundfile") is None:
        raise RequestError(
            f"{about} is not a WAV file; send one, or install the package soundfile in the server's environment for "
            "other formats"
        )
    try:
        samples, rate = importlib.import_module("soundfile").read(io.BytesIO(content), dtype="float32")
    except Exception as error:
        raise RequestError(f"{about} could not be read as sound: {error}") from error
    return samples, int(rate)
