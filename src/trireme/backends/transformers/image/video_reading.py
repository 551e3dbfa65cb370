"""Frames out of requests: a video's file, several pictures, or an array."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.backends.compiled.batching import RequestError
from trireme.backends.transformers.file_content import file_content
from trireme.backends.transformers.image.reading import SHOWN_BYTES, read_image

Frame = NDArray[np.uint8]
Choice = Callable[[int], Sequence[int]]
"""Which frames are wanted of a video with so many; raises RequestError where it has too few."""


def read_frames(given: Any, choose: Choice) -> list[Frame]:
    """The frames that are chosen, in red, green and blue; raises RequestError."""
    if given is None:
        raise RequestError("input 'video' is missing")
    if not isinstance(given, np.ndarray):
        return _of_file(file_content(given), choose)
    if given.dtype == np.object_:
        pictures = given.ravel()
        return [np.asarray(read_image(pictures[index], "video")) for index in choose(len(pictures))]
    if given.ndim != 4 or given.size == 0 or given.shape[3] != 3:
        raise RequestError(f"input 'video' must have frames, height, width and 3 colours, its shape is {given.shape}")
    return [given[index] for index in choose(len(given))]


def _of_file(content: bytes, choose: Choice) -> list[Frame]:
    pictures = _moving_picture(content)
    if pictures is not None:
        frames = _pillow_frames(pictures)
        return _chosen(frames, choose(pictures.n_frames), lambda frame: np.asarray(frame.convert("RGB")))
    return _of_film(content, choose)


def _moving_picture(content: bytes) -> Any:
    """What Pillow reads, such as an animated GIF or WebP; None for anything else."""
    try:
        return importlib.import_module("PIL.Image").open(io.BytesIO(content))
    except Exception:  # Pillow raises what the format's decoder raises
        return None


def _pillow_frames(pictures: Any) -> Iterator[Any]:
    for index in range(pictures.n_frames):
        pictures.seek(index)
        yield pictures


def _of_film(content: bytes, choose: Choice) -> list[Frame]:
    try:
        av = importlib.import_module("av")
    except ImportError:
        raise RequestError(
            f"{_shown(content)} needs the package av to be read, which this server does not have: install it (pip "
            "install av), or send an animated GIF or WebP, several pictures, or an array of frames"
        ) from None
    try:
        with av.open(io.BytesIO(content)) as film:
            count = film.streams.video[0].frames or sum(1 for _ in film.decode(video=0))
            film.seek(0)
            return _chosen(film.decode(video=0), choose(count), lambda frame: frame.to_ndarray(format="rgb24"))
    except RequestError:
        raise
    except Exception as error:  # libav raises what the format's decoder raises, and no video at all is an IndexError
        raise RequestError(f"{_shown(content)} could not be read as a video: {error}") from error


def _chosen(frames: Iterator[Any], indices: Sequence[int], colours: Callable[[Any], Frame]) -> list[Frame]:
    """Reads no further than the last, and makes colours of those only that are wanted."""
    wanted, found = set(indices), {}
    for index, frame in enumerate(frames):
        if index in wanted:
            found[index] = colours(frame)
            if len(found) == len(wanted):
                break
    if len(found) < len(wanted):
        raise RequestError(f"input 'video' ends early: frame {min(wanted - found.keys())} cannot be read")
    return [found[index] for index in indices]


def _shown(content: bytes) -> str:
    return f"input 'video' ({len(content)} bytes, beginning {content[:SHOWN_BYTES]!r})"
