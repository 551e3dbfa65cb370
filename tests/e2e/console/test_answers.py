"""Outputs as the page shows them, number by number."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from browser import Page
from running_server import RunningServer

SHOWN = """import('/console/static/trying/answers.js').then((found) => {
  const place = document.createElement('div');
  place.append(...found.showOutputs([%(output)s], {labels: {OUT: %(labels)s}}));
  return [...place.querySelectorAll(%(selector)s)].map((one) => one.textContent);
})"""
LARGE = (1 << 53) + 1


def shown(page: Page, output: str, selector: str, labels: object = None) -> Any:
    return page.run(SHOWN % {"output": output, "selector": json.dumps(selector), "labels": json.dumps(labels)})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("12340.4", "12340"),
        ("1.2e-10", "1.2e-10"),
        ("-3e-20", "-3e-20"),
        ("-1234567.8", "-1234568"),
        ("100.5", "100.5"),
        ("0.1", "0.1"),
        ("1000", "1000"),
        ("NaN", "NaN"),
        ("-Infinity", "-Infinity"),
    ],
)
def test_number_is_shown_as_large_as_it_is(page: Page, server: RunningServer, value: str, text: str) -> None:
    output = f"{{name: 'OUT', datatype: 'FP64', shape: [1], values: Float64Array.of({value})}}"
    assert shown(page, output, "td") == [text]


@pytest.mark.parametrize("text", [f'{{"id": {LARGE}}}', f'[{{"ids": [1, -{LARGE}]}}]'])
def test_large_whole_numbers_in_a_text_stay_what_they_are(page: Page, server: RunningServer, text: str) -> None:
    output = f"{{name: 'OUT', datatype: 'BYTES', shape: [1], values: [{json.dumps(text)}]}}"
    assert shown(page, output, "pre") == [text]


def test_json_in_a_text_is_set_out(page: Page, server: RunningServer) -> None:
    output = """{name: 'OUT', datatype: 'BYTES', shape: [1], values: ['{"a": [1, 2.5]}']}"""
    assert shown(page, output, "pre") == ['{\n  "a": [\n    1,\n    2.5\n  ]\n}']


def test_as_many_classes_as_a_catalogue_has_become_bars(page: Page, server: RunningServer) -> None:
    output = "{name: 'OUT', datatype: 'FP32', shape: [200000], values: new Float32Array(200000).fill(0.5)}"
    names = shown(page, output, ".bars > span:not(.n)", labels=["first"])
    assert names[0] == "first"
    assert names[-1] == "and 199980 more"


def test_booleans_of_the_wire_are_shown_as_true_and_false(page: Page, server: RunningServer) -> None:
    output = "{name: 'OUT', datatype: 'BOOL', shape: [2], values: decode('BOOL', Uint8Array.of(1, 0).buffer)}"
    script = SHOWN % {"output": output, "selector": json.dumps("td"), "labels": "null"}
    assert page.run(f"import('/console/static/parts/tensors.js').then(({{decode}}) => {script})") == ["true", "false"]


WIDTHS = """import('/console/static/trying/answers.js').then(({bars}) =>
  [...bars(%(names)s, %(values)s).querySelectorAll('.lane div')].map((bar) => bar.style.width))"""


@pytest.mark.parametrize(
    ("values", "widths"),
    [
        ("[-1, -9, -5]", ["100%", "50%", "0%"]),
        ("[3, -1, 1]", ["100%", "50%", "0%"]),
        ("[0.25, 0.5, 1]", ["100%", "50%", "25%"]),
        ("[1, Infinity, 0.5]", ["", "100%", "50%"]),  # as wide as there is room
    ],
)
def test_longest_bar_is_the_likeliest(page: Page, server: RunningServer, values: str, widths: list[str]) -> None:
    assert page.run(WIDTHS % {"names": "['a', 'b', 'c']", "values": values}) == widths


VIEW = """import('/console/static/trying/answers.js').then(({showOutputs}) => {
  const [output] = showOutputs([%s], {});
  const folded = output.querySelector('details');
  const what = (node) => node && (node.querySelector('canvas') || node.matches('canvas') ? 'image' : 'numbers');
  return [what(output.querySelector('.stack > :first-child')), folded && what(folded.lastChild), folded?.open];
})"""


@pytest.mark.parametrize(
    ("datatype", "shape", "kind", "seen"),
    [
        ("FP32", [16, 16], "Float32Array", ["numbers", "image", False]),
        ("FP32", [1, 16, 16], "Float32Array", ["numbers", "image", False]),
        ("UINT8", [16, 16], "Uint8Array", ["image", "numbers", False]),
        ("FP32", [1, 3, 16, 16], "Float32Array", ["image", "numbers", False]),
        ("FP32", [16, 16, 3], "Float32Array", ["image", "numbers", False]),
    ],
)
def test_matrix_is_there_as_numbers_and_as_an_image(
    page: Page, server: RunningServer, datatype: str, shape: list[int], kind: str, seen: list[object]
) -> None:
    size = math.prod(shape)
    output = f"{{name: 'OUT', datatype: '{datatype}', shape: {shape}, values: new {kind}({size}).fill(7)}}"
    assert page.run(VIEW % output) == seen
