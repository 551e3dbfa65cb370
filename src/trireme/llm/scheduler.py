"""Which tokens of which sequences the next step computes, and which blocks of the cache they use.

A step is planned while the one before it still runs. So a sequence may be planned whose last token is not known yet
(`pending`): the executor has it. A sequence that turns out to have ended runs one step too many, whose result is thrown
away; its blocks can be given to others at once, because steps run one after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass

from trireme.llm.beams.sharing import BlockCopy, Move, go_on_from, share_beginning, together
from trireme.llm.block_pool import BlockPool
from trireme.llm.prefix_cache import find_prefix
from trireme.llm.request import FinishReason, Sequence
from trireme.llm.step_plan import Chunk, OpenPlan, SchedulerLimits, StepPlan
from trireme.llm.turns.giving_way import one_of_most, who_gives_way
from trireme.llm.turns.slow_grammars import SlowGrammarSequences
from trireme.llm.turns.waiting_line import WaitingLine


@dataclass(slots=True)
class SchedulerStats:
    """Counted since the start."""

    preemptions: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Tokens of prompts that were found in the cache."""
    looked_up_tokens: int = 0


class Scheduler:
    """Owns the sequences that wait and run, and the blocks."""

    def __init__(self, limits: SchedulerLimits) -> None:
        self.limits = limits
        self.pool = BlockPool(limits.block_count)
        self.stats = SchedulerStats()
        self._line = WaitingLine()
        self._aside = SlowGrammarSequences(limits.max_sequences)
        self._running: list[Sequence] = []
        self._free_slots = list(range(limits.max_sequences - 1, -1, -1))
        self._moved: list[Sequence] = []
        """Beams that go on from others, since the last plan."""

    @property
    def running_count(self) -> int:
        return len(self._running)

    @property
    def waiting_count(self) -> int:
        return len(self._line) + len(self._aside)

    @property
    def has_work(self) -> bool:
        return bool(self._line or self._running or self._aside)

    @property
    def running(self) -> Items[Sequence]:
        """Those that run, the oldest first; not to be modified."""
        return self._running

    def sequences(self) -> Iterator[Sequence]:
        """Those that wait and those that run."""
        yield from self._running
        yield from self._line
        yield from self._aside

    def add(self, sequence: Sequence) -> None:
        """Lets a new sequence wait for its turn."""
        self._lengthen(sequence)
        self._line.add(sequence)

    def finish(self, sequence: Sequence, reason: FinishReason) -> None:
        """Ends a sequence wherever it is; its blocks are free at once."""
        if sequence.is_finished:
            return
        for one in together(sequence):
            one.finish_reason = reason
        if sequence.slot >= 0:
            self._take_out(sequence)
        elif not self._aside.remove(sequence):
            self._line.remove(sequence)

    def schedule(self) -> StepPlan | None:
        """The next step; None where nothing can run now."""
        opened = OpenPlan(self.limits.max_step_tokens)
        opened.joined += [one for one in self._moved if one.slot >= 0]
        self._moved.clear()
        if self._line and self._line.has_several:
            self._make_way()
        self._turn_slow_ones()
        self._plan_running(opened)
        if not opened.has_preempted:
            self._plan_waiting(opened)
        if not opened.chunks:
            self._moved += opened.joined
            return None
        joined = tuple(one for one in opened.joined if one.slot >= 0)  # some may have been thrown out again
        token_count = self.limits.max_step_tokens - opened.budget
        return StepPlan(tuple(opened.chunks), token_count, joined, 0 < len(self._running) <= 2 * opened.open_count)

    def _make_way(self) -> None:
        """Lets one of a request of which several run wait again, where nothing runs of another for want of room."""
        newcomer = self._line.first_by_share()
        if newcomer is None or self._line.running_of_request(newcomer):
            return
        if self._free_slots and self._room_for(newcomer) is not None:
            return
        missing = self._need_of(newcomer)[1] - self.pool.free_count
        victim = who_gives_way(newcomer, self._running, self._line, missing, self.limits.block_size)
        if victim is not None:
            self._preempt(victim)
            self._line.is_turn_of_share = True

    def _turn_slow_ones(self) -> None:
        """Lets one that is left out of steps wait where another finds no room, or one of those go on."""
        newcomer = self._line.first()
        slow = None if newcomer is None else self._aside.who_goes(self._running, newcomer, len(self._free_slots))
        if newcomer is not None and slow is not None:
            if len(together(newcomer)) > len(self._free_slots) or self._room_for(newcomer) is None:
                self._interrupt(slow)
                self._aside.add(slow)
        elif self._free_slots and (slow := self._aside.who_returns(self._running, is_alone=newcomer is None)):
            self._aside.remove(slow)
            self._line.add(slow)

    def _plan_running(self, opened: OpenPlan) -> None:
        index = 0
        while index < len(self._running) and opened.budget > 0:
            sequence = self._running[index]
            if self._must_wait(sequence):
                index += 1
                continue
            count = min(sequence.size - sequence.computed, opened.budget)
            if self._has_blocks(sequence, sequence.computed + count) or self._grow(index, count, opened):
                behind = len(self._running) - index - 1
                drafts = self._fitting_drafts(sequence, count, opened.budget - behind) if sequence.drafts else ()
                self._append(opened, sequence, count, drafts)
                index += 1
            # else it was the last of them and is gone

    def _must_wait(self, sequence: Sequence) -> bool:
        """Whether all of it is under way, or its next token depends on one that is."""
        if sequence.awaits_mask or (sequence.peers and (sequence.is_suspended or sequence.pending)):
            return True
        size = sequence.size
        if sequence.computed >= size or size >= sequence.max_size:
            return True
        if not sequence.pending:
            return False
        return self._needs_last_token(sequence) or self._becomes_long(sequence, size)

    def _needs_last_token(self, sequence: Sequence) -> bool:
        """Whether a step for its next token cannot begin before the last one is known."""
        if sequence.params.needs_history and not self.limits.chooses_later:
            return True
        return sequence.awaits_drafts or sequence.may_have_slow_grammar

    def _fitting_drafts(self, sequence: Sequence, count: int, budget: int) -> tuple[int, ...]:
        """Those that a step of so many tokens can verify behind the last known one, in blocks that nobody misses.

        All of the sequence is under way then, and it is not planned again before the step is settled.
        """
        known = sequence.computed + count
        if sequence.pending or known != len(sequence.tokens):
            return ()
        most = min(len(sequence.drafts), budget - count, sequence.max_size - known - 1)
        if not sequence.is_long and self.limits.short_positions:
            most = min(most, self.limits.short_positions - known)
        missing = self._blocks_for(known + max(most, 0)) - len(sequence.blocks)
        spare = self.pool.free_count - len(self._running)  # each that runs may need a block with its next token
        if missing > 0 and spare > 0:
            sequence.blocks += self.pool.allocate(min(missing, spare)) or []
        most = min(most, len(sequence.blocks) * self.limits.block_size - known)
        return sequence.drafts[: max(most, 0)]

    def _append(self, opened: OpenPlan, sequence: Sequence, count: int, drafts: tuple[int, ...] = ()) -> None:
        start = sequence.computed
        samples = start + count == sequence.size
        is_pending = samples and count == 1 and sequence.pending > 0
        count += len(drafts)
        opened.chunks.append(Chunk(sequence, start, count, samples, is_pending, sequence.admissions, drafts))
        opened.budget -= count
        opened.open_count += samples and (self._needs_last_token(sequence) or bool(sequence.peers))
        sequence.computed = start + count
        sequence.pending += samples

    def _has_blocks(self, sequence: Sequence, token_count: int) -> bool:
        """Whether a sequence that goes on alone has the blocks for so many tokens."""
        return not sequence.peers and len(sequence.blocks) * self.limits.block_size >= token_count

    def _grow(self, index: int, count: int, opened: OpenPlan) -> bool:
        """Gets blocks for so many more tokens of one that runs; others behind it give up theirs, in the end itself.

        Beams get those of all of them with the first that is planned, so that none of them is planned when they go: for
        the tokens they have, as what is under way of one that is planned already belongs to the next step.
        """
        sequence = self._running[index]
        wanted = [(one, len(one.tokens)) for one in sequence.peers if not one.is_suspended]
        wanted = wanted or [(sequence, sequence.computed + count)]
        for one, size in wanted:
            missing = self._blocks_for(size) - len(one.blocks)
            while missing > 0:
                blocks = self.pool.allocate(missing)
                if blocks is not None:
                    one.blocks += blocks
                    break
                victim = one_of_most(self._running[index:], self._line)  # not planned yet
                self._preempt(victim)
                opened.has_preempted = True
                if victim in together(sequence):
                    return False
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self._interrupt(sequence)
        self._line.add(together(sequence)[0])

    def _interrupt(self, sequence: Sequence) -> None:
        """Others need its blocks, or its slot."""
        self.stats.preemptions += 1
        for one in together(sequence):
            one.preemptions += 1
        self._stop(sequence)

    def _stop(self, sequence: Sequence) -> None:
        """Takes out a sequence that runs, to be computed anew; beams wait together."""
        self._take_out(sequence)
        for one in together(sequence):
            one.computed = 0
            one.remembered = 0

    def _plan_waiting(self, opened: OpenPlan) -> None:
        held_back = []
        while opened.budget > 0 and self._free_slots and (sequence := self._line.first()) is not None:
            if any(one.pending for one in together(sequence)):  # preempted on its way: that has to be known first
                self._line.remove(sequence)
                held_back.append(sequence)
            elif not self._admit(sequence, opened):
                break
        for sequence in held_back:
            self._line.add(sequence)

    def _room_for(self, sequence: Sequence) -> list[int] | None:
        """The known blocks of one that waits; None: there is no room for all of its tokens. With room for those of the
        next step alone it would be thrown out on its way, and others with it."""
        found, wanted = self._need_of(sequence)
        return found if wanted <= self.pool.free_count and self._leaves_room(wanted) else None

    def _need_of(self, sequence: Sequence) -> tuple[list[int], int]:
        """The same, and how many of the free blocks that takes."""
        found = self._known_blocks(sequence)
        fresh = self._blocks_for(len(sequence.tokens)) - len(found)
        return found, fresh + self.pool.count_free(found) + self._ends_of_beams(sequence)

    def _admit(self, sequence: Sequence, opened: OpenPlan) -> bool:
        found = self._room_for(sequence)
        if found is None or len(sequence.peers) > len(self._free_slots):
            return False
        size, start = len(sequence.tokens), len(found) * self.limits.block_size
        self.pool.hold(found)
        sequence.blocks = found + (self.pool.allocate(self._blocks_for(size) - len(found)) or [])
        sequence.computed = start
        sequence.remembered = len(found)
        sequence.awaits_mask = False
        self._line.remove(sequence)
        self._line.note_start(sequence)
        self._line.is_turn_of_share = not self._line.is_turn_of_share
        for one in together(sequence):
            one.slot = self._free_slots.pop()
            one.admissions += 1
            one.size_at_admission = size
            one.is_suspended = one is not sequence
            self._running.append(one)
        if sequence.admissions == 1:  # later its own tokens are in the cache as well
            sequence.cached = start
            self.stats.prompt_tokens += size
        self.stats.cached_tokens += start
        self.stats.looked_up_tokens += size
        opened.joined.append(sequence)
        self._append(opened, sequence, min(size - start, opened.budget))
        return True

    def _ends_of_beams(self, sequence: Sequence) -> int:
        """Blocks that beams which were thrown out need beside the leader's as soon as that is computed; without them
        they would be thrown out again, and all behind them with them."""
        if not sequence.output_count:
            return 0
        own = self._blocks_for(len(sequence.tokens)) - sequence.prompt_size // self.limits.block_size
        return max(len(sequence.peers) - 1, 0) * own

    def _leaves_room(self, wanted: int) -> bool:
        """Whether those that run can each go on for a block: without, newcomers would be thrown out at once."""
        return not self._running or self.pool.free_count - wanted >= len(self._running) // self.limits.block_size

    def _known_blocks(self, sequence: Sequence) -> list[int]:
        """The blocks that hold the sequence's beginning; at least its last token is computed in any case."""
        if not self.limits.has_prefix_cache or sequence.wants_prompt_logprobs:
            return []
        count = (len(sequence.tokens) - 1) // self.limits.block_size
        return find_prefix(self.pool, sequence.keys.up_to(sequence.tokens, count))

    def settle(self, chunk: Chunk, tokens: Items[int] = ()) -> bool:
        """Takes over what a step brought for a chunk; False where the sequence has ended meanwhile.

        Several tokens are those that were drafted, and the one behind them.
        """
        sequence = chunk.sequence
        if chunk.samples:
            sequence.pending -= 1
        if sequence.finish_reason is not None:
            return False
        wrong = len(chunk.drafts) - len(tokens) + 1 if chunk.drafts and tokens else len(chunk.drafts)
        if wrong and self._is_current(chunk):
            sequence.computed -= wrong
        if tokens:
            sequence.tokens += tokens
            self._lengthen(sequence)
        if self.limits.has_prefix_cache and self._is_current(chunk) and not sequence.error:
            self._remember(sequence, min(chunk.start + chunk.count - wrong, len(sequence.tokens)))
        return True

    def _is_current(self, chunk: Chunk) -> bool:
        """Whether what a chunk has computed is still in its sequence's blocks."""
        return chunk.sequence.slot >= 0 and chunk.sequence.admissions == chunk.admission

    def spread(self, beams: Items[Sequence]) -> None:
        """Lets beams go on that were suspended while the first of them was computed, from the blocks they share."""
        size = self.limits.block_size
        for beam in beams[1:]:
            share_beginning(self.pool, beams[0], beam, size)
        self._moved += beams[1:]

    def move(self, moves: Items[Move]) -> list[BlockCopy]:
        """Lets beams go on, each from one of them with a token more; returns which blocks have to be copied first."""
        copies = []
        for move in moves:
            if move.beam is not move.parent:
                copies += go_on_from(self.pool, move, self.limits.block_size)
                self._moved.append(move.beam)
        for move in moves:
            if move.beam is move.parent:
                move.beam.tokens.append(move.token)
        self._lengthen(moves[0].beam)
        return copies

    def suspend(self, beams: Items[Sequence]) -> None:
        """Beams that do not go on for now; their blocks are free."""
        for beam in beams:
            self.pool.release(beam.blocks)
            beam.blocks = []
            beam.is_suspended = True

    def _becomes_long(self, sequence: Sequence, size: int) -> bool:
        return 0 < self.limits.short_positions < size and not sequence.is_long

    def _lengthen(self, sequence: Sequence) -> None:
        """Once a sequence has become long, nothing that was computed for it before is of use."""
        if self._becomes_long(sequence, len(sequence.tokens)):
            for one in together(sequence):
                one.is_long = True
                one.keys = one.keys.salted(b"long")
            if sequence.slot >= 0:
                self._stop(sequence)
                self._line.add(together(sequence)[0])

    def _remember(self, sequence: Sequence, computed: int) -> None:
        full = computed // self.limits.block_size
        if full <= sequence.remembered:
            return
        keys = sequence.keys.up_to(sequence.tokens, full)
        for index in range(sequence.remembered, min(full, len(sequence.blocks))):
            self.pool.remember(sequence.blocks[index], keys[index])
        sequence.remembered = full

    def _blocks_for(self, token_count: int) -> int:
        return -(-token_count // self.limits.block_size)

    def _take_out(self, sequence: Sequence) -> None:
        """Of those that run."""
        self._line.note_end(sequence)
        for one in together(sequence):
            self._running.remove(one)
            self._release(one)

    def _release(self, sequence: Sequence) -> None:
        self.pool.release(sequence.blocks)
        sequence.blocks = []
        self._free_slots.append(sequence.slot)
        sequence.slot = -1
