"""A model that cannot be loaded because the software of its accelerator is not installed: the load says so, or the CPU
stands in where somebody has asked for that."""

from __future__ import annotations

from collections.abc import Iterator

from trireme.backends.python.compat import switches
from trireme.backends.python.compat.accelerators import gaudi_finder, neuron_finder


def stand_in_for(error: BaseException) -> bool:
    """Whether the error is about such software and there are stand-ins now that were not there before. Raises
    ModuleNotFoundError that says what is missing and how to go on where nobody has asked for stand-ins."""
    for missing in _missing_modules(error):
        name = missing.name or ""
        if gaudi_finder.provides(name):
            if switches.is_asked_for(gaudi_finder.WORD):
                return gaudi_finder.install()
            _reword(error, missing, gaudi_finder.refusal(name))
        elif neuron_finder.provides(name):
            neuron_finder.refuse_on_cores(name)
            if switches.is_asked_for(neuron_finder.WORD):
                return neuron_finder.install()
            _reword(error, missing, neuron_finder.refusal(name))
    return False


def _missing_modules(error: BaseException | None) -> Iterator[ModuleNotFoundError]:
    """Those that the error is, or that it came from: files word such failures anew. Causes may form a circle."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, ModuleNotFoundError):
            yield error
        error = error.__cause__ or error.__context__


def _reword(error: BaseException, missing: ModuleNotFoundError, text: str) -> None:
    if error is missing:
        raise ModuleNotFoundError(text, name=missing.name) from error
