"""The lines of fields, however their entries are written."""

from __future__ import annotations

import pytest

from trireme.config.text.field_lines import field_lines, line_of

TEXT = """name: "m"
input [
  { name: "a" dims: [ 1, 2 ] },
  {
    name: "b"
    data_type: TYPE_FP32
  }
]
input { name: "c" }
# parameters { key: "none" }
parameters { key: "one" value { string_value: "1" } }
parameters {
  key: "two"
  value { string_value: "}" }
}
ensemble_scheduling { step [ { model_name: "x" input_map { key: "k" value: "v" } } ] }
"""


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("name", 1),
        ("input", 2),
        ("input[0].dims", 3),
        ("input[1]", 4),
        ("input[1].data_type", 6),
        ("input[1].dims", 4),
        ("input[2]", 9),
        ("input[2].name", 9),
        ("parameters['one']", 11),
        ("parameters['two']", 13),
        ("parameters['two'].value", 14),
        ("ensemble_scheduling.step[0].input_map['k']", 16),
        ("ensemble_scheduling.step[3].model_name", 16),
        ("output[0]", None),
        ("", None),
    ],
)
def test_line_of_a_field_or_of_what_lacks_it(place: str, line: int | None) -> None:
    assert line_of(place, field_lines(TEXT)) == line


@pytest.mark.parametrize("text", ["", "}", "input [", "input: [ {", "a { b { c", '"'])
def test_text_without_structure_has_lines_as_far_as_it_goes(text: str) -> None:
    assert line_of("output", field_lines(text)) is None


@pytest.mark.parametrize(
    "text", ["a { " * 50_000, "a { " * 40 + "} " * 40, "parameters { " + 'key: "k" ' * 40 + "}", "a: [ { " * 50_000]
)
def test_what_is_no_configuration_has_no_more_places_than_one(text: str) -> None:
    lines = field_lines(f'{text}\nname: "m"\n')
    assert len(lines) < 10_000
    assert line_of("a.a.a.a.a.a.a.a.a.a.a.a", lines) in (1, None)


def test_the_lines_behind_what_is_too_deep_are_those_of_the_text() -> None:
    assert field_lines("a { " * 40 + "b: 1 " + "} " * 40 + "\nname: 1")["name"] == 2
