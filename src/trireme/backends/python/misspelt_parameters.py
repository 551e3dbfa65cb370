"""Parameters of a python model whose names are nearly those that the server reads. A model may have any of its own, so
that only what is misspelt in all likelihood is told, and nothing is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from trireme.backends.server_parameters import SERVER_PARAMETERS
from trireme.core.close_names import closest

_NEAR: Final = 0.85
_MOST_LOOKED_AT: Final = 32


def misspelt_parameters(given: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each, of the first ones where there are very many: who loads a model may name any."""
    absent = sorted(SERVER_PARAMETERS.difference(given))
    for name in islice((name for name in given if name not in SERVER_PARAMETERS), _MOST_LOOKED_AT):
        if (meant := _meant(name, absent)) is not None:
            yield f"parameter '{name}' is none of the server's and is left to the model: did you mean '{meant}'?"


def _meant(name: str, known: Iterable[str]) -> str | None:
    """In names of several words the case does not matter. Those of one word are near to other words that somebody may
    mean: there two letters have changed places, or one is missing, and nothing else is taken for a slip."""
    for other in known:
        if "_" not in other and _is_slip(name, other):
            return other
    by_folded = {other.lower(): other for other in known if "_" in other}
    close = closest(name.lower().replace("-", "_"), by_folded, _NEAR) if "_" in name or "-" in name else None
    return by_folded[close] if close is not None else None


def _is_slip(name: str, word: str) -> bool:
    if len(name) == len(word):
        return sorted(name) == sorted(word) and name != word
    return any(name == word[:place] + word[place + 1 :] for place in range(len(word)))
