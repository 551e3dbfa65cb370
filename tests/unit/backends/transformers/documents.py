"""Documents for the tests of this folder: words with their places, pages, and a question about them."""

from __future__ import annotations

from typing import Any

import numpy as np
from payloads import png, text

TEXT = "the ship sails to the harbour of athens captain otto lives in paris the storm was bad"
WORDS = TEXT.split()
LONG = WORDS * 5  # more tokens than the model has places
QUESTION = "where is the ship ?"


def boxes_of(words: list[str]) -> list[list[int]]:
    return [[40 * (index % 20), 30 * (index // 20), 40 * (index % 20) + 35, 900] for index in range(len(words))]


def document(words: list[str], question: str = QUESTION) -> dict[str, Any]:
    """The inputs of one request."""
    return {
        "question": text(question),
        "words": np.array([[word.encode() for word in words]], dtype=np.object_).reshape(1, len(words)),
        "boxes": np.array([boxes_of(words)], dtype=np.int32).reshape(1, len(words), 4),
    }


def page(seed: int, **size: int) -> Any:
    return np.array([[png(seed, **size)]], dtype=np.object_)
