"""The two strategies of the sequence batcher: a fixed place in the batch per sequence, or the oldest requests first."""

from __future__ import annotations

from trireme.config.model_config import ModelConfig
from trireme.config.sequence_config import OldestStrategyConfig, SequenceBatchingConfig
from trireme.core.request import InferenceRequest
from trireme.observe.stats import ModelStats
from trireme.scheduling.dynamic_batch import compatibility
from trireme.scheduling.response_order import ResponseOrder
from trireme.scheduling.sequence.scheduler import SchedulerContext, SequenceScheduler
from trireme.scheduling.sequence.sequence import InstanceSlots, LiveSequence


class DirectSequenceScheduler(SequenceScheduler):
    """Each sequence has a slot of its instance's batches; where it has nothing to run, a null request stands there."""

    def __init__(
        self,
        config: ModelConfig,
        batching: SequenceBatchingConfig,
        stats: ModelStats,
        context: SchedulerContext,
    ) -> None:
        slots = max(1, config.max_batch_size)
        super().__init__(config, batching, stats, context, capacity=slots, order=None)
        self._wanted_count = batching.minimum_slot_utilization * slots
        self._delay_ns = batching.max_queue_delay_us * 1000 if self._wanted_count else 0
        self._shapes = compatibility(config) if slots > 1 else None

    def _choose(self, slots: InstanceSlots, now_ns: int) -> list[LiveSequence]:
        oldest = next(iter(slots.ready))
        chosen = list(slots.ready)
        if self._shapes is not None and len(chosen) > 1:
            common = self._shapes(oldest.waiting[0])
            chosen = [sequence for sequence in chosen if self._shapes(sequence.waiting[0]) == common]
        if self._delay_ns and len(slots.ready) < self._wanted_count and not self._is_stopped:
            due_ns = oldest.ready_ns + self._delay_ns
            if now_ns < due_ns:
                self._alarm.set(due_ns)
                return []
        return chosen

    def _lay_out(self, chosen: list[LiveSequence], requests: list[InferenceRequest]) -> list[InferenceRequest]:
        by_slot = {sequence.slot: request for sequence, request in zip(chosen, requests, strict=True)}
        highest = max(by_slot)
        if not highest:
            return requests
        laid_out: list[InferenceRequest] = []
        for slot in range(highest + 1):
            request = by_slot.get(slot)
            laid_out.append(self._inputs.null_request(requests[0]) if request is None else request)
        return laid_out


class OldestSequenceScheduler(SequenceScheduler):
    """The next requests of up to so many sequences are batched as the dynamic batcher batches, the oldest first."""

    def __init__(
        self,
        config: ModelConfig,
        batching: SequenceBatchingConfig,
        oldest: OldestStrategyConfig,
        stats: ModelStats,
        context: SchedulerContext,
    ) -> None:
        limit = max(1, config.max_batch_size)
        super().__init__(
            config,
            batching,
            stats,
            context,
            capacity=oldest.max_candidate_sequences if oldest.max_candidate_sequences > 0 else limit,
            order=ResponseOrder() if oldest.preserve_ordering else None,
        )
        self._limit = limit
        self._delay_ns = oldest.max_queue_delay_us * 1000
        self._preferred = frozenset(oldest.preferred_batch_sizes) or frozenset({limit})
        self._max_preferred = max(self._preferred)
        self._shapes = compatibility(config) if limit > 1 else None

    def _choose(self, slots: InstanceSlots, now_ns: int) -> list[LiveSequence]:
        chosen, is_closed = self._longest_prefix(slots)
        if not self._delay_ns or self._is_stopped:
            return chosen
        due_ns = chosen[0].ready_ns + self._delay_ns
        if now_ns >= due_ns:
            return chosen
        preferred = max((size for size in self._preferred if size <= len(chosen)), default=0)
        if preferred:
            return chosen[:preferred]
        if is_closed or len(chosen) >= self._max_preferred:
            return chosen
        self._alarm.set(due_ns)
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
