"""Parameters of requests that look like inputs which the request lacks: told in the log, once per model and name."""

from __future__ import annotations

import logging

from trireme.core.close_names import MAX_CHARS, closest
from trireme.core.request import InferenceRequest
from trireme.registry.model import Model

log = logging.getLogger(__name__)

_MOST_NAMES = 1024
"""So many are looked at in the life of a server: names come from clients."""


class MistakenNames:
    """A misspelt name of an optional input fails nothing, so nobody would notice."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()

    def look_at(self, model: Model, request: InferenceRequest) -> None:
        """Warns of a parameter whose name is close to that of an optional input that was not sent."""
        inputs = model.config.inputs
        absent = [name for name, entry in inputs.items() if entry.is_optional and name not in request.inputs]
        for name in request.parameters if absent else ():
            if len(name) > MAX_CHARS or (model.name, name) in self._seen or len(self._seen) >= _MOST_NAMES:
                continue
            self._seen.add((model.name, name))
            close = closest(name, absent, 0.8)
            if close is not None:
                log.warning(
                    "model '%s' was sent '%s', which is no input of it and goes to it as a parameter; "
                    "was its input '%s' meant?",
                    model.name,
                    name,
                    close,
                )
