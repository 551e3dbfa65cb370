"""Plots of how values are spread: every value has its mark, every pair its field."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from trireme.tools.plots.distributions import MOST_MARKS, box_plot, heat_map, thinned


def marks(svg: str, kind: str) -> list[ElementTree.Element]:
    return ElementTree.fromstring(svg).findall(f".//{kind}[@class='mark']")


def test_a_box_has_a_mark_for_every_value_and_the_middle_half_in_it() -> None:
    svg = box_plot("t", "ms", [5, 1, 2, 3, 4])
    assert sorted(mark.findtext("title") or "" for mark in marks(svg, "circle")) == ["1", "2", "3", "4", "5"]
    assert "median 3, middle half 2 to 4" in svg
    places = [float(mark.get("cx", "")) for mark in marks(svg, "circle")]
    assert places == sorted(places)
    assert len(set(places)) == 5


@pytest.mark.parametrize("values", [[0.0], [7.0], [3.0] * 10, [0.001, 1e9]])
def test_a_box_of_few_or_far_values_stays_in_its_frame(values: list[float]) -> None:
    for mark in marks(box_plot("t", "ms", values), "circle"):
        assert 72 <= float(mark.get("cx", "")) <= 608


def test_many_values_are_thinned_with_both_ends_kept() -> None:
    kept = thinned(100_000)
    assert (len(kept), kept[0], kept[-1]) == (MOST_MARKS, 0, 99_999)
    assert thinned(3) == [0, 1, 2]
    assert len(marks(box_plot("t", "ms", list(range(5000))), "circle")) == MOST_MARKS


def test_pairs_are_counted_by_field() -> None:
    svg = heat_map("t", ("in", "out"), [(20, 8), (20, 8), (29, 4), (80, 8)])
    told = sorted(mark.findtext("title") or "" for mark in marks(svg, "rect"))
    assert told == [
        "1: in 20 to 30, out 4 to 5",
        "1: in 70 to 80, out 7 to 8",
        "2: in 20 to 30, out 7 to 8",
    ]
    one = heat_map("t", ("in", "out"), [(550, 16)] * 10)
    assert [mark.findtext("title") for mark in marks(one, "rect")] == ["10: in 550 to 551, out 16 to 17"]


def test_titles_cannot_break_out() -> None:
    assert "<b>" not in box_plot("<b>", "<b>", [1]) + heat_map("<b>", ("<b>", "<b>"), [(1, 1)])
