"""Plots that can be read: round numbers, marks where the values are, and texts that cannot break out."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ElementTree

import pytest

from trireme.tools.plots.svg import BarGroup, Series, bar_plot, line_plot


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(f"<div>{svg}</div>")


def test_a_mark_for_every_point_within_the_frame() -> None:
    plot = parsed(line_plot("t", "x", "y", [Series("a", [(1, 10), (5, 100), (9, 90)], ["one", "two", "three"])]))
    marks = plot.findall(".//circle[@class='mark']")
    assert [mark.findtext("title") for mark in marks] == ["one", "two", "three"]
    for mark in marks:
        assert 72 <= float(mark.get("cx", "")) <= 608
        assert 16 <= float(mark.get("cy", "")) <= 312
    assert float(marks[1].get("cy", "")) < float(marks[0].get("cy", "")), "more is higher"


@pytest.mark.parametrize("top", [0.0, 0.0003, 1.0, 7.3, 99, 100, 12345.6, 9e6])
def test_axes_end_at_or_above_the_largest_value_with_round_steps(top: float) -> None:
    plot = parsed(line_plot("t", "x", "y", [Series("a", [(top, top)])]))
    (mark,) = plot.findall(".//circle")
    assert float(mark.get("cx", "")) <= 608.1
    texts = [text.text or "" for text in plot.findall(".//text")]
    assert 4 <= len([text for text in texts if re.match(r"^[\d.,]+(e-\d+)?M?$", text)]) <= 20


def test_what_is_predicted_is_a_dashed_line_without_marks() -> None:
    plot = parsed(line_plot("t", "x", "y", [Series("a", [(1, 1)], has_marks=False, is_dashed=True)]))
    assert plot.findall(".//circle") == []
    assert plot.find(".//polyline").get("stroke-dasharray")  # type: ignore[union-attr]


def test_a_limit_is_an_upright_line_with_its_text() -> None:
    plot = parsed(line_plot("t", "x", "y", [Series("a", [(1, 1)])], [(4.0, "p99 ≤ 4 ms")]))
    line = plot.find(".//line[@class='limit']")
    assert line is not None
    assert line.get("x1") == line.get("x2")
    assert "p99 ≤ 4 ms" in [text.text for text in plot.findall(".//text")]


def test_parts_of_a_stacked_bar_follow_each_other() -> None:
    plot = parsed(bar_plot("t", "ms", [BarGroup("a", {"x": 1.0, "y": 3.0})], {"x": "red", "y": "blue"}, True))
    first, second = plot.findall(".//rect")
    assert float(second.get("x", "")) == pytest.approx(
        float(first.get("x", "")) + float(first.get("width", "")), abs=0.2
    )
    assert float(second.get("width", "")) == pytest.approx(3 * float(first.get("width", "")), abs=0.3)


def test_labels_begin_within_the_picture_and_tell_the_same_ends_apart() -> None:
    long = "a_rather_long_name_of_a_model_that_reads_config_"
    names = [f"{long}{number},another_model_config_{number}" for number in range(2)]
    plot = parsed(bar_plot("t", "ms", [BarGroup(name, {"x": 1.0}) for name in names], {"x": "red"}, True))
    labels = plot.findall(".//text[@class='label']")
    assert len({label.text for label in labels}) == 4, "a line for each model"
    assert [label.findtext("title") for label in labels[::2]] == names, "the whole for a pointer"
    for label in labels:
        assert float(label.get("x", "")) - 7 * len(label.text or "") >= 0
    places = [float(label.get("y", "")) for label in labels]
    assert places == sorted(places)
    assert all(after - before >= 14 for before, after in itertools.pairwise(places))


def test_the_last_number_of_an_axis_and_the_text_of_a_limit_are_within_the_picture() -> None:
    plots = [
        line_plot("t", "x", "y", [Series("a", [(100_000, 1)])], [(10.0, "p99 ≤ 10 ms")]),
        bar_plot("t", "ms", [BarGroup("a", {"x": 100_000})], {"x": "red"}, True),
    ]
    for svg in plots:
        for text in parsed(svg).findall(".//text[@x]"):
            width, x = 7 * len(text.text or ""), float(text.get("x", ""))
            begin = {"middle": x - width / 2, "end": x - width}.get(text.get("text-anchor", ""), x)
            assert 0 <= begin <= begin + width <= 640, text.text


def test_names_cannot_break_out_of_the_page() -> None:
    svg = line_plot("<t>", "<x>", "&y", [Series("</svg><script>", [(1, 1)], ["<b>"])])
    parsed(svg)
    assert "<script>" not in svg
