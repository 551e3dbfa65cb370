"""Drafts from a smaller model with the same vocabulary, which writes a few tokens ahead of the large one.

It follows each sequence with a cache of its own, and draws with the sequence's own noise: where both models think
alike, they then choose the same token, also at a temperature.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from typing import Any

from trireme.llm.block_pool import BlockPool
from trireme.llm.executors.port import Executor, WarmUp
from trireme.llm.prefix_cache import BlockKeys
from trireme.llm.request import Sequence
from trireme.llm.sampling_params import SamplingParams
from trireme.llm.step_plan import Chunk, StepPlan

_IN_FLIGHT = 2
"""Steps that a device may have been given before the first of them is waited for."""


@dataclass(slots=True)
class _Follower:
    """A sequence in the draft model's cache: the tokens of the one that it follows, then those that it wrote itself."""

    own: Sequence
    wanted: int = 0
    """How many tokens to write."""
    drafts: list[int] = field(default_factory=list)
    has_joined: bool = False
    """Whether the executor knows that the slot is this one's."""
    is_foreign: bool = False
    """Whether it has a token that the draft model does not know."""


class ModelDrafter:
    """Runs the draft model's steps between those of the large one."""

    def __init__(self, executor: Executor, vocab_size: int) -> None:
        """Takes the executor over; `vocab_size` is the large model's."""
        self._executor = executor
        self._limits = executor.limits
        self._vocab_size = vocab_size
        self._pool = BlockPool(executor.limits.block_count)
        self._free_slots = list(range(executor.limits.max_sequences - 1, -1, -1))
        self._followers: OrderedDict[Sequence, _Follower] = OrderedDict()
        """By the sequence that they follow, the longest unused first."""

    @property
    def is_preparing(self) -> bool:
        return self._executor.is_preparing

    def warm_ups(self) -> Items[WarmUp]:
        return self._executor.warm_ups()

    def would_draft(self, sequence: Sequence) -> bool:
        return len(sequence.tokens) < self._executor.spec.max_positions

    def draft(self, wanted: Items[tuple[Sequence, int]]) -> list[tuple[int, ...]]:
        asking = {sequence for sequence, _ in wanted}
        found = [self._follow(sequence, count, asking) for sequence, count in wanted]
        self._write([one for one in found if one is not None])
        return [self._known_to_both(one.drafts) if one is not None else () for one in found]

    def forget(self, sequence: Sequence) -> None:
        follower = self._followers.pop(sequence, None)
        if follower is not None:
            self._pool.release(follower.own.blocks)
            self._free_slots.append(follower.own.slot)

    def close(self) -> None:
        self._followers.clear()
        self._executor.close()

    def _follow(self, sequence: Sequence, count: int, asking: set[Sequence]) -> _Follower | None:
        """Brings what follows the sequence up to its tokens, as far as that needs no step; None: there is no room."""
        follower = self._followers.get(sequence) or self._new(sequence, asking)
        if follower is None:
            return None
        self._followers.move_to_end(sequence)
        own, size = follower.own, len(sequence.tokens)
        same = next(
            (place for place in range(own.prompt_size, min(size, len(own.tokens)))
             if own.tokens[place] != sequence.tokens[place]),
            min(size, len(own.tokens)),
        )  # fmt: skip
        follower.is_foreign |= max(sequence.tokens[own.prompt_size :], default=0) >= self._executor.spec.vocab_size
        if follower.is_foreign:
            return None
        own.tokens[same:] = sequence.tokens[same:]
        own.computed = min(own.computed, same, size - 1)
        own.prompt_size = size
        follower.wanted, follower.drafts = self._room(own, count), []
        return follower if follower.wanted > 0 and self._grow(own, size + follower.wanted - 1, asking) else None

    def _room(self, own: Sequence, count: int) -> int:
        """How many tokens can be written; a follower that has become too long for the usual rotation begins anew."""
        short, size = self._limits.short_positions, len(own.tokens)
        if short and size > short and not own.is_long:
            own.is_long, own.computed = True, 0
        most = short if short and not own.is_long else self._executor.spec.max_positions
        return min(count, most - size + 1)

    def _new(self, sequence: Sequence, asking: set[Sequence]) -> _Follower | None:
        if not self._free_slots and not self._evict(asking):
            return None
        params = sequence.params
        own = Sequence(
            sequence.sequence_id,
            [],
            0,
            SamplingParams(temperature=params.temperature, top_k=params.top_k, top_p=params.top_p, min_p=params.min_p),
            _nobody,
            BlockKeys(self._limits.block_size),
            self._executor.spec.max_positions,
            seed=sequence.seed,
            slot=self._free_slots.pop(),
            admissions=1,
        )
        self._followers[sequence] = _Follower(own)
        return self._followers[sequence]

    def _grow(self, own: Sequence, size: int, asking: set[Sequence]) -> bool:
        missing = -(-size // self._limits.block_size) - len(own.blocks)
        while missing > 0:
            blocks = self._pool.allocate(missing)
            if blocks is not None:
                own.blocks += blocks
                return True
            if not self._evict(asking):
                return False
        return True

    def _evict(self, asking: set[Sequence]) -> bool:
        """Forgets the longest unused of those that nobody asks for now."""
        oldest = next((sequence for sequence in self._followers if sequence not in asking), None)
        if oldest is not None:
            self.forget(oldest)
        return oldest is not None

    def _write(self, followers: list[_Follower]) -> None:
        """Runs steps until they have their drafts. A device that goes ahead is given the next before the last is known.

        Who has more to catch up with than a step takes gets no drafts yet: others wait for theirs.
        """
        flights: deque[tuple[list[_Follower], Any]] = deque()
        ahead = _IN_FLIGHT if self._executor.is_async else 1
        planned = dict.fromkeys(map(id, followers), 0)
        while followers:
            chunks, writers = self._plan(followers, planned)
            if chunks:
                flights.append((writers, self._submit(chunks, followers)))
            while len(flights) >= ahead:
                self._collect(*flights.popleft())
            followers = writers
        for flight in flights:
            self._collect(*flight)

    def _plan(self, followers: list[_Follower], planned: dict[int, int]) -> tuple[list[Chunk], list[_Follower]]:
        """The tokens that are missing of each, or the next that it writes; and who gets a token by that."""
        budget, chunks, writers = self._limits.max_step_tokens, [], []
        for follower in followers:
            own, done = follower.own, planned[id(follower)]
            known = own.prompt_size + done
            count = min(known - own.computed, budget)
            if done >= follower.wanted or count <= 0:
                continue
            samples = own.computed + count == known
            is_pending = samples and known > len(own.tokens)
            chunks.append(Chunk(own, own.computed, count, samples, is_pending, 1))
            budget -= count
            own.computed += count
            if samples:
                planned[id(follower)] = done + 1
                writers.append(follower)
        return chunks, writers

    def _submit(self, chunks: list[Chunk], followers: Iterable[_Follower]) -> Any:
        planned = {chunk.sequence for chunk in chunks}
        joining = [one for one in followers if one.own in planned and not one.has_joined]
        for one in joining:
            one.has_joined = True
        count = sum(chunk.count for chunk in chunks)
        return self._executor.submit(StepPlan(tuple(chunks), count, tuple(one.own for one in joining)))

    def _collect(self, writers: list[_Follower], handle: Any) -> None:
        for follower, token in zip(writers, self._executor.collect(handle).tokens, strict=True):
            follower.drafts.append(int(token))
            follower.own.tokens.append(int(token))

    def _known_to_both(self, drafts: list[int]) -> tuple[int, ...]:
        """The model may have more rows than there are tokens: up to the first that the other does not have."""
        wrong = (place for place, token in enumerate(drafts) if token >= self._vocab_size)
        return tuple(drafts[: next(wrong, len(drafts))])


def _nobody(output: object) -> None:
    """Whoever follows tells nobody."""
