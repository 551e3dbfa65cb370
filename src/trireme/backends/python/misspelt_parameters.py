"""Parameters of a python model whose names are nearly those that the server reads. A model may have any of its own, so
that only what is misspelt in all likelihood is told, and nothing is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from trireme.backends.server_parameters import SERVER_PARAMETERS
from trireme.core.close_names import closest

_NEAR: Final = 0.8


def misspelt_parameters(given: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each."""
    absent = sorted(SERVER_PARAMETERS.difference(given))
    for name in given:
        if name not in SERVER_PARAMETERS and (meant := _meant(name, absent)) is not None:
            yield f"parameter '{name}' is none of the server's and is left to the model: did you mean '{meant}'?"


def _meant(name: str, known: Iterable[str]) -> str | None:
    """In names of several words the case does not matter; `devices`, `DEVICE` and `compatible` are others' words."""
    by_folded = {other.lower() if "_" in other else other: other for other in known}
    folded = name.lower().replace("-", "_") if "_" in name or "-" in name else name
    close = closest(folded, by_folded, _NEAR)
    if close is None or ("_" not in close and folded.startswith(close)):
        return None
    return by_folded[close]
