"""Who makes room for another request, and who stays."""

from __future__ import annotations

from trireme.llm.prefix_cache import BlockKeys
from trireme.llm.request import Sequence
from trireme.llm.sampling_params import SamplingParams
from trireme.llm.turns.giving_way import who_gives_way
from trireme.llm.turns.waiting_line import WaitingLine

BLOCK = 4


def sequence(number: int, size: int = 100, written: int = 60, request: int | None = 1) -> Sequence:
    """One of so many tokens, of which it has written so many since it was let in."""
    keys, blocks = BlockKeys(BLOCK), list(range(size // BLOCK))
    one = Sequence(number, [1] * size, 3, SamplingParams(), lambda output: None, keys, 1000, request_id=request)
    one.size_at_admission, one.blocks = size - written, blocks
    return one


def newcomer() -> Sequence:
    return sequence(100, request=None)


def asked(new: Sequence, *running: Sequence, missing_blocks: int = 1) -> Sequence | None:
    line = WaitingLine()
    for one in running:
        line.note_start(one)
    return who_gives_way(new, running, line, missing_blocks, BLOCK)


def test_the_last_of_the_request_of_which_most_run_goes() -> None:
    running = [sequence(1), sequence(2, request=2), sequence(3), sequence(4), sequence(5, request=2)]
    assert asked(newcomer(), *running) is running[3]


def test_nobody_goes_for_what_is_not_known_in_full_or_for_beams() -> None:
    running = [sequence(1), sequence(2)]
    unknown, leader = newcomer(), newcomer()
    unknown.pending = 1
    leader.peers = [leader, newcomer()]
    assert asked(unknown, *running) is None
    assert asked(leader, *running) is None


def test_who_has_had_no_turn_yet_stays() -> None:
    assert asked(newcomer(), sequence(1, 40, 31), sequence(2, 40, 31)) is None
    assert asked(newcomer(), sequence(1, 40, 32), sequence(2, 40, 31)) is not None
    assert asked(newcomer(), sequence(1, 400, 99), sequence(2, 400, 99)) is None
    assert asked(newcomer(), sequence(1, 400, 100), sequence(2, 400, 99)) is not None


def test_one_whose_grammar_is_slow_goes_before_it_has_had_its_turn() -> None:
    slow, quick = sequence(1, 40, 2), sequence(2, 40, 2)
    slow.awaits_mask = True
    assert asked(newcomer(), slow, quick) is slow
    slow.priority = -1
    assert asked(newcomer(), slow, quick) is None


def test_beams_and_the_more_important_stay() -> None:
    important, beam = sequence(1), sequence(2)
    important.priority, beam.peers = -1, [beam, sequence(2)]
    assert asked(newcomer(), important, beam) is None
    important.priority = 0
    assert asked(newcomer(), important, beam) is important


def test_nobody_goes_where_that_would_not_be_enough() -> None:
    running = [sequence(1), sequence(2)]
    for one in running:
        one.cached = 20 * BLOCK  # which others may have as well
    assert asked(newcomer(), *running, missing_blocks=10) is running[1]
    assert asked(newcomer(), *running, missing_blocks=11) is None
