"""The tensors of a model's file beside those of its configuration: which is which, and what the file says of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trireme.backends.compiled.model_load import ModelLoadError

_INDEXED = re.compile(r".*__(\d+)")


def names_in_file(kind: str, declared: Sequence[str], known: Sequence[str]) -> dict[str, str]:
    """The file's name for each of the configuration's: the same, or the one at the place that `<name>__<index>` says.

    Raises ModelLoadError where a name is neither.
    """
    found = {}
    for name in declared:
        match = _INDEXED.fullmatch(name)
        if name in known:
            found[name] = name
        elif match is not None and int(match.group(1)) < len(known):
            found[name] = known[int(match.group(1))]
        else:
            raise ModelLoadError(
                f"the model's file has no {kind} '{name}', only {', '.join(map(repr, known))}; use that name, or "
                f"'<name>__<index>' with an index below {len(known)}"
            )
    return found


def fixed_rows(first_dims: Sequence[object]) -> int | None:
    """The rows that a file insists on, where all its inputs agree in a first dimension that is a number."""
    firsts = set(first_dims)
    first = firsts.pop() if len(firsts) == 1 else None
    return first if isinstance(first, int) and first > 0 else None
