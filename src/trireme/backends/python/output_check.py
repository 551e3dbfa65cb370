"""Whether the outputs that a model's code makes are those that its configuration promises, and the words where not."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from trireme.config.model_config import ModelConfig, TensorConfig
from trireme.config.nearest import nearest
from trireme.core.errors import InternalError

log = logging.getLogger(__name__)

Form = tuple[str, str, tuple[int, ...]]
"""Name, datatype and shape of an output."""
_MOST_FORMS = 1024
_PARAMETER = "strict_outputs"
"""With "true" or "false" a model's configuration decides for itself; any other value is the model's own."""


class OutputCheck:
    """Knows the outputs of one model. `known` holds the forms that need no second look; a caller asks it first.

    What is wrong is logged once per output, unless the configuration says that it is meant so. Where the check is not
    strict, as in Triton, it goes on its way.
    """

    def __init__(self, config: ModelConfig, states: Collection[str], is_strict: bool) -> None:
        self.known: set[Form] = set()
        self._model = config.name
        self._outputs = config.outputs
        self._states = states
        self._batch_rank = 1 if config.max_batch_size > 0 else 0
        said = config.parameters.get(_PARAMETER, "").lower()
        self._is_strict = is_strict if said not in ("true", "false") else said == "true"
        self._is_meant = said == "false"
        self._told: set[str] = set()

    def examine(self, name: str, datatype: str, shape: Sequence[int]) -> InternalError | None:
        """The error that the request is to be answered with; None where the output may pass."""
        form = (name, datatype, tuple(shape))
        problem = self._problem(*form)
        if problem is None or not self._is_strict:
            if len(self.known) >= _MOST_FORMS:
                self.known.clear()
            self.known.add(form)
        if problem is None:
            return None
        sentence = f"model '{self._model}' {problem}"
        if name not in self._told and len(self._told) < _MOST_FORMS and not self._is_meant:
            self._told.add(name)
            log.warning("%s", sentence)
        return InternalError(f"{sentence} (--strict-model-outputs=false lets it pass)") if self._is_strict else None

    def _problem(self, name: str, datatype: str, shape: tuple[int, ...]) -> str | None:
        promised = self._outputs.get(name)
        if promised is None:
            return None if name in self._states else self._unknown(name)
        if datatype != promised.datatype:
            return f"made output '{name}' with datatype {datatype}, its configuration says {promised.datatype}"
        if not self._fits(promised, shape):
            batch = [-1] if self._batch_rank else []
            expected = [*batch, *(promised.dims if promised.reshape is None else promised.reshape)]
            return f"made output '{name}' with shape {list(shape)}, its configuration says {expected}"
        return None

    def _fits(self, promised: TensorConfig, shape: tuple[int, ...]) -> bool:
        expected = promised.dims if promised.reshape is None else promised.reshape
        given = shape[self._batch_rank :]
        if len(shape) < self._batch_rank or len(given) != len(expected):
            return False
        return all(want in (-1, got) for want, got in zip(expected, given, strict=True))

    def _unknown(self, name: str) -> str:
        close = nearest(name, self._outputs)
        meant = f"did you mean '{close}'?" if close else f"it has: {', '.join(self._outputs) or 'none'}"
        return f"made output '{name}', which its configuration does not have, {meant}"
