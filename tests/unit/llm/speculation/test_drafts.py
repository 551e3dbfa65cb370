"""Where guesses come from, how many of them there are, and which of them count."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from trireme.llm.prefix_cache import BlockKeys
from trireme.llm.request import Sequence
from trireme.llm.sampling_params import SamplingParams
from trireme.llm.speculation.acceptance import verified_tokens
from trireme.llm.speculation.ngram import NgramDrafter
from trireme.llm.speculation.pace import DraftPace
from trireme.llm.step_plan import Chunk


def sequence(tokens: list[int], end_ids: frozenset[int] = frozenset(), **params: object) -> Sequence:
    made = SamplingParams(**params)  # type: ignore[arg-type]
    return Sequence(1, list(tokens), len(tokens), made, lambda output: None, BlockKeys(4), 1000, end_ids=end_ids)


def verified(drafts: tuple[int, ...], tokens: list[int], one: Sequence | None = None) -> list[int]:
    one = one or sequence([1, 2, 3])
    return verified_tokens(Chunk(one, 2, 1 + len(drafts), True, False, 1, drafts), tokens)


def test_tokens_count_up_to_the_first_that_is_not_as_it_was_drafted() -> None:
    assert verified((5, 6, 7), [5, 6, 9, 8]) == [5, 6, 9]
    assert verified((5, 6, 7), [5, 6, 7, 8]) == [5, 6, 7, 8]
    assert verified((5, 6, 7), [1, 6, 7, 8]) == [1]
    assert verified((), [4]) == [4]


def test_nothing_counts_behind_a_token_that_ends_the_sequence() -> None:
    assert verified((5, 0, 7), [5, 0, 7, 8], sequence([1], frozenset({0}))) == [5, 0]
    assert verified((0, 0, 7), [0, 0, 7, 8], sequence([1], frozenset({0}), min_tokens=2)) == [0, 0]
    assert verified((0, 7), [0, 7, 8], sequence([1], frozenset({0}), min_tokens=5)) == [0, 7, 8]


def test_what_followed_the_last_tokens_before_is_drafted() -> None:
    (found,) = NgramDrafter().draft([(sequence([1, 2, 3, 4, 5, 6, 7, 1, 2, 3]), 3)])
    assert found == (4, 5, 6)


def test_the_latest_place_counts_and_the_longer_match_before_it() -> None:
    drafter = NgramDrafter()
    assert drafter.draft([(sequence([1, 2, 3, 8, 1, 2, 3, 9, 5, 1, 2, 3]), 1)]) == [(9,)]
    assert drafter.draft([(sequence([7, 1, 2, 3, 8, 4, 1, 2, 3, 9, 7, 1, 2, 3]), 1)]) == [(8,)]


def test_a_text_that_repeats_itself_is_drafted_beyond_its_end() -> None:
    drafter = NgramDrafter()
    assert drafter.draft([(sequence([4, 4, 4, 4]), 5)]) == [(4,) * 5]
    assert drafter.draft([(sequence([1, 2, 3, 1, 2, 3, 1]), 5)]) == [(2, 3, 1, 2, 3)]


def test_few_tokens_alike_say_nothing() -> None:
    assert NgramDrafter().draft([(sequence([1, 2, 9, 1, 2]), 4), (sequence([1]), 4)]) == [(), ()]


def test_bytes_between_two_tokens_are_no_match() -> None:
    """256 is the byte 1 one place further: these tokens are found in others, but for where they begin."""
    assert NgramDrafter().draft([(sequence([256, 256, 256, 256, 5, 1, 1, 1]), 2)]) == [()]


@given(st.lists(st.sampled_from([0, 1, 256, 65536]), min_size=1, max_size=60), st.integers(1, 6))
def test_drafts_are_those_of_a_plain_search(tokens: list[int], count: int) -> None:
    def plain() -> tuple[int, ...]:
        for size in (4, 3):
            for end in range(len(tokens) - 1, size - 1, -1):
                if len(tokens) > size and tokens[end - size : end] == tokens[-size:]:
                    longer = list(tokens)
                    for place in range(end, end + count):
                        longer.append(longer[place])
                    return tuple(longer[len(tokens) :])
        return ()

    assert NgramDrafter().draft([(sequence(tokens), count)]) == [plain()]


def test_a_growing_text_is_searched_as_if_it_were_new() -> None:
    chance, drafter = random.Random(1), NgramDrafter()
    one = sequence([chance.randrange(3) for _ in range(5)])
    for _ in range(100):
        assert drafter.draft([(one, 4)]) == NgramDrafter().draft([(sequence(one.tokens), 4)])
        assert drafter.would_draft(one) == bool(drafter.draft([(one, 1)])[0])
        one.tokens += [chance.randrange(3) for _ in range(chance.randrange(1, 4))]
    drafter.forget(one)
    assert not drafter._texts


def test_wrong_drafts_make_for_fewer_and_for_a_rest() -> None:
    pace = DraftPace(8)
    assert pace.allowed(100) == 8
    pace.note(8, 3, 104, 8)
    assert pace.allowed(104) == 4
    pace.note(4, 0, 105, 8)
    assert (pace.allowed(105), pace.allowed(106)) == (0, 2)
    for _ in range(10):
        pace.note(1, 0, 200, 8)
    assert (pace.allowed(262), pace.allowed(263)) == (0, 1)


def test_right_drafts_make_for_more() -> None:
    pace = DraftPace(8)
    pace.note(8, 0, 10, 8)
    assert pace.allowed(20) == 4
    pace.note(4, 4, 25, 8)
    assert pace.allowed(25) == 8
    pace.note(8, 8, 34, 8)
    assert pace.allowed(34) == 8
