"""Which sequence a request belongs to, and what it is told where that is none."""

from __future__ import annotations

import logging

from trireme.config.sequence_config import SequenceBatchingConfig
from trireme.core.errors import InvalidArgumentError, UnavailableError
from trireme.core.request import SEQUENCE_END, SEQUENCE_START, InferenceRequest
from trireme.scheduling.sequence.sequence import LiveSequence
from trireme.scheduling.sequence.table import SequenceTable

log = logging.getLogger(__name__)


class SequenceAdmission:
    """Which sequence a request belongs to, by its correlation id and its flags."""

    def __init__(self, name: str, batching: SequenceBatchingConfig, table: SequenceTable, *, has_warmup: bool) -> None:
        self._name = name
        self._is_iterative = batching.is_iterative
        self._has_text_ids = batching.has_text_ids
        self._table = table
        self._has_warmup = has_warmup
        self._last_id = 0  # of those that the server gives

    def admit(self, request: InferenceRequest) -> LiveSequence | None:
        """The sequence that the request continues, or begins anew under the same id; None for a new one. Raises
        InvalidArgumentError where it belongs to none, UnavailableError where what it continues was lost."""
        if request.batch_size > 1:
            raise InvalidArgumentError(
                f"inference request to model '{self._name}' must specify batch-size 1 due to requirements of sequence "
                "batcher"
            )
        if self._is_iterative or not request.correlation_id:
            self._assign_id(request)
        sequence = self._table.by_id.get(request.correlation_id)
        if not request.flags & SEQUENCE_START:
            if sequence is None or not sequence.is_open:
                if request.correlation_id in self._table.lost:
                    if request.flags & SEQUENCE_END:
                        del self._table.lost[request.correlation_id]
                    raise loss_of(request, self._name)
                raise InvalidArgumentError(
                    f"inference request for sequence {request.correlation_id} to model '{self._name}' must specify the "
                    "START flag on the first request of the sequence"
                )
        elif sequence is not None and sequence.is_open:
            log.warning(
                "sequence %s for model '%s' has a conflict. The previous sequence did not end before this sequence "
                "start. Previous sequence will be terminated early.",
                request.correlation_id,
                self._name,
            )
        return sequence

    def _assign_id(self, request: InferenceRequest) -> None:
        """Iterative requests are sequences of their own; so are those that warm the model up, which come before
        any client's and were not timed on their way here."""
        if self._is_iterative:
            request.flags = SEQUENCE_START
            if request.correlation_id:
                return
        elif self._has_warmup and not request.arrival_ns:
            request.flags = SEQUENCE_START | SEQUENCE_END
        else:
            raise InvalidArgumentError(
                f"inference request to model '{self._name}' must specify a non-zero or non-empty correlation ID"
            )
        while not request.correlation_id or request.correlation_id in self._table.by_id:
            self._last_id += 1
            request.correlation_id = str(self._last_id) if self._has_text_ids else self._last_id


def loss_of(request: InferenceRequest, model: str) -> UnavailableError:
    """What a request is told whose sequence was lost with its instance."""
    return UnavailableError(
        f"sequence {request.correlation_id} of model '{model}' ended early because its model instance is gone; "
        "begin it again with the START flag"
    )
