"""Files as values of an input: arrays, JSON, text, pictures, sounds, or the bytes as they are."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from trireme.core.datatype import BF16, BYTES, NUMPY_DTYPE
from trireme.core.reading.json_levels import read_json
from trireme.tools.client.errors import InputError
from trireme.tools.infer.picture import PICTURE_SUFFIXES, pixels_for, read_picture
from trireme.tools.infer.sound import SOUND_SUFFIXES, read_samples
from trireme.tools.infer.values import values_of_text
from trireme.tools.perf.model import TensorSpec


def read_bytes(name: str) -> bytes:
    """A file's content, or that of the standard input for `-`; raises InputError."""
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(os.path.expanduser(name)).read_bytes()
    except OSError as error:
        raise InputError(f"'{name}' cannot be read: {error.strerror}") from None


def read_text(name: str) -> str:
    """A file of text; raises InputError."""
    try:
        return read_bytes(name).decode()
    except UnicodeDecodeError:
        raise InputError(f"'{name}' is no text in UTF-8") from None


def values_of_file(spec: TensorSpec, name: str) -> Any:
    """What a file holds for this input, by the file's suffix and the input's datatype. Raises InputError."""
    suffix = Path(name).suffix.lower()
    if suffix in (".npy", ".npz"):
        return _array(spec, name)
    if suffix == ".json" and spec.datatype != BYTES:
        return _json(name)
    if spec.datatype == BYTES:
        return _elements(name, suffix)
    if suffix in PICTURE_SUFFIXES and len(spec.shape) > 1:
        return pixels_for(spec, read_picture(read_bytes(name), name), name)
    if suffix in SOUND_SUFFIXES and spec.datatype != "UINT8":
        return read_samples(read_bytes(name), name, spec.datatype)
    if suffix in (".txt", ".csv", ""):
        return values_of_text(spec, read_text(name))
    return _numbers(spec, name)


def _array(spec: TensorSpec, name: str) -> Any:
    read_bytes(name)  # for its error
    try:
        found = np.load(os.path.expanduser(name), allow_pickle=False)
        if not isinstance(found, np.lib.npyio.NpzFile):
            return found
        with found:
            if spec.name in found:
                return found[spec.name]
            if len(found.files) == 1:
                return found[found.files[0]]
            raise InputError(f"'{name}' has no array '{spec.name}'; it has: {', '.join(found.files)}")
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise InputError(f"'{name}' is no file of numpy's that can be read: {error}") from None


def _json(name: str) -> Any:
    try:
        values = read_json(read_text(name))
    except ValueError as error:
        raise InputError(f"'{name}' is no JSON: {error}") from None
    return values


def _elements(name: str, suffix: str) -> Any:
    """One element with the content; a text without the line break that editors put at its end."""
    content = read_bytes(name)
    return content.removesuffix(b"\n").removesuffix(b"\r") if suffix in (".txt", ".md") or name == "-" else content


def _numbers(spec: TensorSpec, name: str) -> Any:
    """Numbers as they are on the wire."""
    content = read_bytes(name)
    dtype = np.dtype("<u2") if spec.datatype == BF16 else NUMPY_DTYPE[spec.datatype]
    if len(content) % dtype.itemsize:
        raise InputError(
            f"'{name}' has {len(content)} bytes, which are no whole number of {spec.datatype} for input '{spec.name}'"
        )
    numbers = np.frombuffer(content, dtype)
    return (numbers.astype("<u4") << 16).view("<f4") if spec.datatype == BF16 else numbers
