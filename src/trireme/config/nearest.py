"""The valid name a misspelt one was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable

from trireme.core.close_names import closest


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """The closest of `valid`, whatever the case; also one that ends with `name`, so `FP32` finds `TYPE_FP32`, or, where
    none is close, that begins with it or is its beginning: `text` and `text_input`."""
    by_folded = {candidate.lower(): candidate for candidate in valid}
    folded = name.lower().replace("-", "_")
    if not folded:
        return None
    if folded in by_folded:
        return by_folded[folded]
    for candidate, original in by_folded.items():
        if candidate.endswith("_" + folded):
            return original
    close = closest(folded, by_folded)
    if close is not None:
        return by_folded[close]
    for candidate, original in by_folded.items():
        if candidate and (candidate.startswith(f"{folded}_") or folded.startswith(f"{candidate}_")):
            return original
    return None


def meant(name: str, valid: Iterable[str]) -> str:
    """The same, and nothing where nothing is close: for sentences that others know by their end."""
    close = nearest(name, valid)
    return f", did you mean '{close}'?" if close is not None and close != name else ""


def suggestion(name: str, valid: Iterable[str]) -> str:
    """The end of an error's sentence: `, did you mean 'x'?`, or the whole choice where nothing is close."""
    names = list(valid)
    close = nearest(name, names)
    if close is not None:
        return f", did you mean '{close}'?"
    return f", valid are: {', '.join(names)}" if names else ""
