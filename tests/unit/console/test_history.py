"""The ring of the last hour."""

from __future__ import annotations

from trireme.console.history import COLUMNS, History


def test_columns_are_in_order_of_time_with_gaps_where_nothing_was() -> None:
    history: History[str] = History(("a", "b"), steps=3)
    history.add(1.0, {"x": (1, 10)})
    history.add(2.0, {})
    history.add(3.0, {"x": (3, 30), "y": (4, 40)})
    assert history.times() == [1.0, 2.0, 3.0]
    assert history.columns_of("x") == {"a": [1, None, 3], "b": [10, None, 30]}
    assert history.columns_of("y") == {"a": [None, None, 4], "b": [None, None, 40]}
    assert history.columns_of("z") == {}


def test_ring_forgets_the_oldest_step() -> None:
    history: History[str] = History(("a",), steps=3)
    for number in range(5):
        history.add(float(number), {"x": (number,)})
    assert history.times() == [2.0, 3.0, 4.0]
    assert history.columns_of("x") == {"a": [2, 3, 4]}
    assert history.tails("a", 2) == {"x": [3, 4]}


def test_tails_of_all_keys_leave_out_what_is_not_known() -> None:
    history: History[str] = History(("a", "b"), steps=3)
    history.add(0.0, {"x": (1, 10)})
    history.add(1.0, {"x": (2, 20), "y": (3, 30)})
    history.add(2.0, {"y": (4, 40)})
    assert history.tails("b", 2) == {"x": [20], "y": [30, 40]}
    assert history.tails("a", 9) == {"x": [1, 2], "y": [3, 4]}


def test_model_that_is_gone_for_an_hour_is_forgotten() -> None:
    history: History[str] = History(("a",), steps=3)
    history.add(0.0, {"x": (1,)})
    for number in range(3):
        assert history.columns_of("x"), number
        history.add(float(number), {})
    assert history.columns_of("x") == {}


def test_a_model_takes_the_bytes_that_the_module_says() -> None:
    history: History[str] = History()
    history.add(0.0, {"x": [1.0] * len(COLUMNS)})
    ring = history._rings["x"]
    assert len(ring) * ring.itemsize == 18_720
