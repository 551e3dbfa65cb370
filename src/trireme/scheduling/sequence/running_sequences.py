"""The sequences that run: each has at most one request on an instance, and goes on when that is answered."""

from __future__ import annotations

import logging

from trireme.core.clock import Clock
from trireme.core.errors import unwritten_error
from trireme.core.request import SEQUENCE_END, SEQUENCE_START, InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.scheduling.response_order import ResponseOrder
from trireme.scheduling.sequence.inputs import SequenceInputs
from trireme.scheduling.sequence.sequence import LiveSequence
from trireme.scheduling.sequence.table import SequenceTable

log = logging.getLogger(__name__)


class RunningSequences:
    """Takes requests out of their sequences to run, and lets the sequences go on when they have."""

    def __init__(
        self,
        table: SequenceTable,
        inputs: SequenceInputs,
        order: ResponseOrder | None,
        clock: Clock,
        *,
        is_iterative: bool,
    ) -> None:
        self.by_request: dict[InferenceRequest, LiveSequence] = {}
        self._table = table
        self._inputs = inputs
        self._order = order
        self._clock = clock
        self._is_iterative = is_iterative

    def begin(self, chosen: list[LiveSequence]) -> list[InferenceRequest]:
        """The next requests of sequences that are ready on one instance, as its model is to get them."""
        requests: list[InferenceRequest] = []
        for sequence in chosen:
            request = self._table.take_next(sequence)
            self.by_request[request] = sequence
            if self._order is not None and not sequence.is_rerun:
                self._order.join(request)
            sequence.is_rerun = False
            self._inputs.add_controls(sequence, request)
            requests.append(request)
        return requests

    def take_answer(self, request: InferenceRequest, response: InferenceResponse) -> None:
        """Keeps the states that a response brings, before the client gets it; with a final one the sequence goes on."""
        sequence = self.by_request.get(request)
        if sequence is None:
            return
        try:
            self._inputs.take_states(sequence, request, response)
        except Exception as error:  # the sequence cannot go on as if this had been nothing, nor without an end
            log.exception("the states in a response to request '%s' could not be kept", request.id)
            response.outputs, response.error = [], unwritten_error(error)
            request.note_unanswered(response.error.message)
        if response.is_final:
            del self.by_request[request]
            self._advance(sequence, request)

    def take_back(self, request: InferenceRequest, was_tried: bool) -> bool:
        """The request waits again, ahead of those that follow it in its sequence; false where it can not run any more,
        because it was cancelled or its instance is gone, and is left to the caller to answer."""
        sequence = self.by_request.pop(request)
        self._inputs.restore(sequence, request)
        if request.is_cancelled or sequence.instance_slots is None:
            self._advance(sequence, request)
            return False
        if not was_tried:
            if self._order is not None:
                self._order.leave(request)
        elif self._is_iterative:
            request.flags = 0
        else:
            request.flags &= ~SEQUENCE_START  # its end is still to come
        now_ns = request.queue_ns = self._clock()
        self._table.put_back(sequence, request, was_tried, now_ns)
        return True

    def _advance(self, sequence: LiveSequence, request: InferenceRequest) -> None:
        """The request, which was the sequence's running one, is over."""
        sequence.running = None
        if sequence.instance_slots is None:
            return  # lost while the request ran
        if self._is_iterative or request.flags & SEQUENCE_END:
            self._table.end(sequence, self._clock())
        else:
            self._table.settle(sequence, self._clock())
