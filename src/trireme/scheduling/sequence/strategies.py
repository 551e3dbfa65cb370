"""The two strategies of the sequence batcher: a fixed place in the batch per sequence, or the oldest requests first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from trireme.config.model_config import ModelConfig
from trireme.config.sequence_config import OldestStrategyConfig, SequenceBatchingConfig
from trireme.core.request import InferenceRequest
from trireme.scheduling.dynamic_batch import compatibility
from trireme.scheduling.response_order import ResponseOrder
from trireme.scheduling.sequence.inputs import SequenceInputs
from trireme.scheduling.sequence.sequence import InstanceSlots, LiveSequence


class SequenceStrategy(ABC):
    """Which of an instance's sequences run their next requests together. `ring_at` is told when one that decided to
    wait is to be asked again."""

    def __init__(self, capacity: int, order: ResponseOrder | None, ring_at: Callable[[int], None]) -> None:
        self.capacity = capacity  # of sequences per instance
        self.order = order
        self._ring_at = ring_at

    @abstractmethod
    def choose(self, slots: InstanceSlots, now_ns: int, is_stopped: bool) -> list[LiveSequence]:
        """Some of those that are ready, of which there must be one; none where it is better to wait."""

    def lay_out(self, chosen: list[LiveSequence], requests: list[InferenceRequest]) -> list[InferenceRequest]:
        """The batch for the next requests of the chosen sequences."""
        return requests


class DirectStrategy(SequenceStrategy):
    """Each sequence has a slot of its instance's batches; where it has nothing to run, a null request stands there."""

    def __init__(
        self,
        config: ModelConfig,
        batching: SequenceBatchingConfig,
        inputs: SequenceInputs,
        ring_at: Callable[[int], None],
    ) -> None:
        slots = max(1, config.max_batch_size)
        super().__init__(slots, None, ring_at)
        self._inputs = inputs
        self._wanted_count = batching.minimum_slot_utilization * slots
        self._delay_ns = batching.max_queue_delay_us * 1000 if self._wanted_count else 0
        self._shapes = compatibility(config) if slots > 1 else None

    def choose(self, slots: InstanceSlots, now_ns: int, is_stopped: bool) -> list[LiveSequence]:
        oldest = next(iter(slots.ready))
        chosen = list(slots.ready)
        if self._shapes is not None and len(chosen) > 1:
            common = self._shapes(oldest.waiting[0])
            chosen = [sequence for sequence in chosen if self._shapes(sequence.waiting[0]) == common]
        if self._delay_ns and len(slots.ready) < self._wanted_count and not is_stopped:
            due_ns = oldest.ready_ns + self._delay_ns
            if now_ns < due_ns:
                self._ring_at(due_ns)
                return []
        return chosen

    def lay_out(self, chosen: list[LiveSequence], requests: list[InferenceRequest]) -> list[InferenceRequest]:
        by_slot = {sequence.slot: request for sequence, request in zip(chosen, requests, strict=True)}
        highest = max(by_slot)
        if not highest:
            return requests
        laid_out: list[InferenceRequest] = []
        for slot in range(highest + 1):
            request = by_slot.get(slot)
            laid_out.append(self._inputs.null_request(requests[0]) if request is None else request)
        return laid_out


class OldestStrategy(SequenceStrategy):
    """The next requests of up to so many sequences are batched as the dynamic batcher batches, the oldest first."""

    def __init__(self, config: ModelConfig, oldest: OldestStrategyConfig, ring_at: Callable[[int], None]) -> None:
        limit = max(1, config.max_batch_size)
        capacity = oldest.max_candidate_sequences if oldest.max_candidate_sequences > 0 else limit
        super().__init__(capacity, ResponseOrder() if oldest.preserve_ordering else None, ring_at)
        self._limit = limit
        self._delay_ns = oldest.max_queue_delay_us * 1000
        self._preferred = frozenset(oldest.preferred_batch_sizes) or frozenset({limit})
        self._max_preferred = max(self._preferred)
        self._shapes = compatibility(config) if limit > 1 else None

    def choose(self, slots: InstanceSlots, now_ns: int, is_stopped: bool) -> list[LiveSequence]:
        chosen, is_closed = self._longest_prefix(slots)
        if not self._delay_ns or is_stopped:
            return chosen
        due_ns = chosen[0].ready_ns + self._delay_ns
        if now_ns >= due_ns:
            return chosen
        preferred = max((size for size in self._preferred if size <= len(chosen)), default=0)
        if preferred:
            return chosen[:preferred]
        if is_closed or len(chosen) >= self._max_preferred:
            return chosen
        self._ring_at(due_ns)
        return []

    def _longest_prefix(self, slots: InstanceSlots) -> tuple[list[LiveSequence], bool]:
        """The most sequences whose next requests can run together, and whether no further one could join them."""
        chosen: list[LiveSequence] = []
        common: object = None
        for sequence in slots.ready:
            if self._shapes is not None:
                shapes = self._shapes(sequence.waiting[0])
                if chosen and shapes != common:
                    return chosen, True
                common = shapes
            chosen.append(sequence)
            if len(chosen) >= self._limit:
                return chosen, True
        return chosen, False


def strategy_of(
    config: ModelConfig, batching: SequenceBatchingConfig, inputs: SequenceInputs, ring_at: Callable[[int], None]
) -> SequenceStrategy:
    """The one that the configuration asks for."""
    if batching.oldest is None:
        return DirectStrategy(config, batching, inputs, ring_at)
    return OldestStrategy(config, batching.oldest, ring_at)
