"""The words of a document and their places: those that a request brings, or those that tesseract reads in its image."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.backends.compiled.batching import RequestError
from trireme.backends.transformers.items import Item
from trireme.core.reading.json_levels import read_json

_SHOWN = 80  # characters of what is wrong
_SCALE = 1000  # boxes are in thousandths of the page
_LANGUAGES = re.compile(r"\w+(\+\w+)*")
_FLAGS = re.compile(r"(--(psm|oem|dpi)[ =]\d+\s*)*")
"""What a request may tell tesseract; others name files of the server."""


@dataclass(frozen=True, slots=True)
class Words:
    """Beside each other: a word, and the left, top, right and bottom of its box."""

    words: Sequence[str]
    boxes: Sequence[Sequence[int]]


def given_words(item: Item) -> Words | None:
    """The inputs `words` and `boxes`, or both as `word_boxes`; None where the request has none of these."""
    words, boxes = item.options.get("words"), item.inputs.get("boxes")
    if "word_boxes" in item.options:
        if words is not None or boxes is not None:
            raise RequestError("'word_boxes' stands for the inputs 'words' and 'boxes'; send either")
        words, boxes = _parted(item.options["word_boxes"])
    if words is None and boxes is None:
        return None
    if words is None or boxes is None:
        here, absent = ("boxes", "words") if words is None else ("words", "boxes")
        raise RequestError(f"input '{here}' is there and '{absent}' is missing; each word needs its box")
    places = np.asarray(boxes)
    if places.ndim != 2 or places.shape != (len(words), 4):
        raise RequestError(
            f"input 'boxes' must have four numbers for each of the {len(words)} words, its shape is {places.shape}"
        )
    _check_places(places)
    count = len(words)
    while count and not words[count - 1].strip():  # what fills up the rows of shorter documents
        count -= 1
    return Words(words[:count], places[:count].tolist())


def recognized_words(image: Any, options: Mapping[str, Any]) -> Words:
    """What tesseract reads in the image; raises RequestError where it is not installed."""
    language, flags = options.get("lang"), options.get("tesseract_config", "")
    if language is not None and not _LANGUAGES.fullmatch(language):
        raise RequestError(f"'lang' must be languages of tesseract such as eng or eng+deu, found '{language}'")
    if not _FLAGS.fullmatch(flags):
        raise RequestError(f"'tesseract_config' may hold --psm, --oem and --dpi with a number each, found '{flags}'")
    try:
        tesseract = importlib.import_module("pytesseract")
    except ImportError:
        raise _unreadable("the package pytesseract is not installed on the server") from None
    try:
        found = tesseract.image_to_data(image, lang=language, output_type="dict", config=flags)
    except tesseract.TesseractNotFoundError:
        raise _unreadable("the program tesseract is not installed on the server") from None
    except tesseract.TesseractError as error:
        raise RequestError(f"tesseract could not read the image: {error}") from error
    return _words_of(found, image.width, image.height)


def _parted(text: str) -> tuple[list[str], NDArray[np.int64]]:
    """Words and boxes of JSON with pairs of both."""
    try:
        pairs = [(str(word), [int(corner) for corner in box]) for word, box in read_json(text)]
        return [word for word, _ in pairs], np.array([box for _, box in pairs], dtype=np.int64).reshape(-1, 4)
    except (ValueError, TypeError, OverflowError):
        raise RequestError(
            f"'word_boxes' must be JSON such as [[\"total\", [10, 20, 90, 40]], ...], found {text[:_SHOWN]!r}"
        ) from None


def _words_of(found: Mapping[str, Sequence[Any]], width: int, height: int) -> Words:
    words, boxes = [], []
    columns = (found[name] for name in ("text", "left", "top", "width", "height"))
    for word, left, top, across, down in zip(*columns, strict=True):
        if word.strip():
            words.append(word)
            corners = (left / width, top / height, (left + across) / width, (top + down) / height)
            boxes.append([int(_SCALE * corner) for corner in corners])
    return Words(words, boxes)


def _check_places(boxes: NDArray[Any]) -> None:
    if boxes.size and (boxes.min() < 0 or boxes.max() > _SCALE):
        raise RequestError(
            f"input 'boxes' must be in thousandths of the page, from 0 to {_SCALE}; found {boxes.min()} to "
            f"{boxes.max()}"
        )
    if (boxes[:, 0] > boxes[:, 2]).any() or (boxes[:, 1] > boxes[:, 3]).any():
        raise RequestError("each of the 'boxes' must be left, top, right and bottom, in this order")


def _unreadable(why: str) -> RequestError:
    return RequestError(
        f"the words of the document were not given, and they cannot be read in its image: {why}; send the inputs "
        "'words' and 'boxes', or install it"
    )
