"""The inputs of a step reach the device, however many there are."""

from __future__ import annotations

import numpy as np
import torch

from trireme.llm.executors.cuda.packing import RING, InputRing, KnownBlocks, send_blocks
from trireme.llm.executors.cuda.prompt_inputs import prompt_inputs
from trireme.llm.executors.cuda.prompt_sizes import PromptSizes, is_batch
from trireme.llm.prefix_cache import BlockKeys
from trireme.llm.request import Sequence
from trireme.llm.sampling_params import SamplingParams
from trireme.llm.scheduler import Scheduler
from trireme.llm.step_plan import Chunk, SchedulerLimits

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def test_more_than_the_ring_holds_is_sent_whole() -> None:
    ring = InputRing(16, DEVICE)
    for step in range(2 * RING):
        ring.begin_step()
        parts = [np.arange(size, dtype=np.int32) + 100 * step for size in (7, 40, 8, 5, 0, 3)]
        sent = [ring.send(part) for part in parts]
        assert [one.tolist() for one in sent] == [part.tolist() for part in parts]


def test_a_step_keeps_its_inputs_while_others_are_sent() -> None:
    ring = InputRing(4, DEVICE)
    ring.begin_step()
    first = ring.send(np.arange(9, dtype=np.int32))
    for _ in range(RING - 1):
        ring.begin_step()
        ring.send(np.full(9, -1, dtype=np.int32))
    assert first.tolist() == list(range(9))


def test_sequences_that_share_their_blocks_may_join_in_one_step() -> None:
    """Each of them needs the whole list, so the lists hold more than the cache has blocks."""
    slots, blocks = 8, 100
    known, chunks = KnownBlocks(slots + 1, 4, blocks), []
    for slot in range(slots):
        tokens = [1] * (4 * blocks)
        one = Sequence(slot, tokens, len(tokens), SamplingParams(), lambda output: None, BlockKeys(4), len(tokens) + 1)
        one.slot, one.blocks = slot, list(range(blocks))
        chunks.append(Chunk(one, len(tokens) - 1, 1, True, False, 1))
    ring = InputRing(8 * slots + 2 * blocks, DEVICE)
    table = torch.full((slots + 1, blocks), -1, dtype=torch.int32).to(DEVICE)
    ring.begin_step()
    send_blocks(known.missing(chunks), table, ring)
    assert table.tolist() == [list(range(blocks))] * slots + [[-1] * blocks]


def test_blocks_of_one_sequence_are_written_behind_those_that_are_known() -> None:
    one = Sequence(0, [1] * 20, 20, SamplingParams(), lambda output: None, BlockKeys(4), 40)
    one.slot, known = 1, KnownBlocks(3, 4, 6)
    ring, table = InputRing(4, DEVICE), torch.full((3, 6), -1, dtype=torch.int32).to(DEVICE)
    for blocks in ([7, 5], [7, 5], [7, 5, 9, 2, 4]):
        one.blocks = blocks
        ring.begin_step()
        send_blocks(known.missing([Chunk(one, 0, 20, True, False, 1)]), table, ring)
        assert table.tolist() == [[-1] * 6, blocks + [-1] * (6 - len(blocks)), [-1] * 6]


def test_a_recorded_step_gets_rows_tiles_and_ends_and_the_rest_is_nobodys() -> None:
    """A prompt of 70 tokens, the last six of another with two drafts behind them, and a token that the device has."""
    spare, chunks = 9, []
    for slot, start, count, is_pending, drafts in (
        (3, 0, 70, False, ()),
        (5, 40, 6, False, (1, 2)),
        (1, 7, 1, True, ()),
    ):
        tokens = [100 * slot + place for place in range(start + count - len(drafts))]
        one = Sequence(slot, tokens, len(tokens), SamplingParams(), lambda output: None, BlockKeys(4), 200)
        one.slot = slot
        chunks.append(Chunk(one, start, count, slot != 3, is_pending, 1, drafts))
    sizes = PromptSizes(80, 1, 8)
    inputs = prompt_inputs(chunks, sizes, spare)
    rows, tiles = inputs[:320].reshape(-1, 4), inputs[320 : 320 + 4 * sizes.tiles].reshape(-1, 4)
    ends, slots = inputs[320 + 4 * sizes.tiles :].reshape(2, 8).tolist()
    assert rows[69].tolist() == [3, 69, -1, 369]
    assert rows[70:77].tolist() == [
        [5, 40, -1, 540], [5, 41, -1, 541], [5, 42, -1, 542], [5, 43, -1, 543], [5, 44, -1, 1], [5, 45, -1, 2],
        [1, 7, -1, -1],
    ]  # fmt: skip
    assert (rows[77:] == [spare, 0, -1, 0]).all()
    assert tiles[:4].tolist() == [[3, 0, 64, 0], [3, 64, 6, 64], [5, 70, 6, 40], [1, 76, 1, 7]]
    assert (tiles[4:] == [spare, 0, 0, 0]).all()
    assert ends == [73, 74, 75, 76, 0, 0, 0, 0]
    assert slots == [5, 5, 5, 1, spare, spare, spare, spare]
    assert (prompt_inputs((), sizes, spare)[:4] == [spare, 0, -1, 0]).all()


def test_a_step_is_no_batch_where_a_prompt_has_room_for_one_token_that_brings_none() -> None:
    scheduler = Scheduler(SchedulerLimits(4, 100, 8, 4))
    sizes = {1: 1, 2: 1, 3: 1, 4: 6}
    for number, size in sizes.items():
        keys = BlockKeys(4)
        scheduler.add(Sequence(number, [1] * size, size, SamplingParams(), lambda output: None, keys, size + 8))
        if number == 3:
            first = scheduler.schedule()
    second = scheduler.schedule()
    assert first is not None
    assert second is not None
    assert is_batch(first)
    assert [(chunk.count, chunk.samples) for chunk in second.chunks] == [(1, True)] * 3 + [(1, False)]
    assert not is_batch(second)
