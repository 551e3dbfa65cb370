"""Times of batches between and beyond those that were seen."""

from __future__ import annotations

import pytest

from trireme.tools.analyze.search.fit.service_times import Seen, ServiceTimes


def test_sizes_in_between_lie_on_the_line() -> None:
    times = ServiceTimes([Seen(1, 1, 10, 1.0), Seen(5, 1, 10, 3.0)])
    assert times(3, 1) == pytest.approx(2.0)
    assert times(9, 1) == pytest.approx(5.0)


def test_nothing_is_faster_than_the_smallest_that_was_seen() -> None:
    assert ServiceTimes([Seen(4, 1, 10, 2.0)])(1, 1) == 2.0


def test_instances_that_do_not_disturb_each_other_stay_as_fast_in_between() -> None:
    times = ServiceTimes([Seen(1, 1, 10, 1.0), Seen(1, 4, 10, 1.0)])
    assert times(1, 2) == pytest.approx(1.0)


def test_instances_add_until_they_have_added_what_was_seen() -> None:
    times = ServiceTimes([Seen(1, 1, 10, 1.0), Seen(1, 4, 10, 2.0)])
    assert times(1, 2) == pytest.approx(1.0)  # two instances do as much as four were seen to do
    assert times(1, 3) == pytest.approx(1.5)


def test_instances_that_do_less_together_are_interpolated() -> None:
    times = ServiceTimes([Seen(1, 1, 10, 1.0), Seen(1, 3, 10, 5.0)])
    assert times(1, 2) == pytest.approx(3.0)


def test_more_than_were_seen_add_nothing() -> None:
    times = ServiceTimes([Seen(1, 1, 10, 1.0), Seen(1, 2, 10, 1.0)])
    assert times(1, 4) == pytest.approx(2.0)


def test_a_level_that_saw_one_size_has_the_shape_of_the_others() -> None:
    times = ServiceTimes([Seen(1, 1, 10, 1.0), Seen(8, 1, 10, 2.0), Seen(8, 4, 10, 6.0)])
    assert times(1, 4) == pytest.approx(3.0)


def test_a_single_batch_is_believed_where_there_is_nothing_else() -> None:
    assert ServiceTimes([Seen(2, 1, 1, 0.5)])(2, 1) == 0.5
