"""Outputs as the page shows them, number by number."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from browser import Page

SHOWN = """import('/console/static/trying/answers.js').then((found) => {
  const place = document.createElement('div');
  place.append(...found.showOutputs([%(output)s], {labels: {OUT: %(labels)s}}));
  return [...place.querySelectorAll(%(selector)s)].map((one) => one.textContent);
})"""
OPEN_ALL = """
  for (const one of place.querySelectorAll('details')) {
    const isToggled = new Promise((done) => one.addEventListener('toggle', done));
    one.open = true;
    await isToggled;
  }
"""
LARGE = (1 << 53) + 1


def shown(modules: Page, output: str, selector: str, labels: object = None) -> Any:
    return modules.run(SHOWN % {"output": output, "selector": json.dumps(selector), "labels": json.dumps(labels)})


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
def test_number_is_shown_as_large_as_it_is(modules: Page, value: str, text: str) -> None:
    output = f"{{name: 'OUT', datatype: 'FP64', shape: [1], values: Float64Array.of({value})}}"
    assert shown(modules, output, "td") == [text]


@pytest.mark.parametrize("text", [f'{{"id": {LARGE}}}', f'[{{"ids": [1, -{LARGE}]}}]'])
def test_large_whole_numbers_in_a_text_stay_what_they_are(modules: Page, text: str) -> None:
    output = f"{{name: 'OUT', datatype: 'BYTES', shape: [1], values: [{json.dumps(text)}]}}"
    assert shown(modules, output, "pre") == [text]


def test_json_in_a_text_is_set_out(modules: Page) -> None:
    output = """{name: 'OUT', datatype: 'BYTES', shape: [1], values: ['{"a": [1, 2.5]}']}"""
    assert shown(modules, output, "pre") == ['{\n  "a": [\n    1,\n    2.5\n  ]\n}']


def test_as_many_classes_as_a_catalogue_has_become_bars(modules: Page) -> None:
    output = "{name: 'OUT', datatype: 'FP32', shape: [200000], values: new Float32Array(200000).fill(0.5)}"
    names = shown(modules, output, ".bars > span:not(.n)", labels=["first"])
    assert names[0] == "first"
    assert names[-1] == "and 199980 more"


def test_booleans_of_the_wire_are_shown_as_true_and_false(modules: Page) -> None:
    output = "{name: 'OUT', datatype: 'BOOL', shape: [2], values: decode('BOOL', Uint8Array.of(1, 0).buffer)}"
    script = SHOWN % {"output": output, "selector": json.dumps("td"), "labels": "null"}
    assert modules.run(f"import('/console/static/parts/tensors.js').then(({{decode}}) => {script})") == [
        "true",
        "false",
    ]


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
def test_longest_bar_is_the_likeliest(modules: Page, values: str, widths: list[str]) -> None:
    assert modules.run(WIDTHS % {"names": "['a', 'b', 'c']", "values": values}) == widths


NAMES = WIDTHS.replace(".lane div')].map((bar) => bar.style.width)", "span:not(.n)')].map((one) => one.textContent)")


def test_class_without_a_number_stands_in_front_and_leaves_the_others_in_their_order(modules: Page) -> None:
    values = "[0.1, NaN, 0.9, -Infinity, NaN, 0.5]"
    names = modules.run(NAMES % {"names": "['a', 'b', 'c', 'd', 'e', 'f']", "values": values})
    assert names == ["b", "e", "c", "f", "a", "d"]


VIEW = """import('/console/static/trying/answers.js').then(async ({showOutputs}) => {
  const [output] = showOutputs([%s], {});
  const folded = output.querySelector('details');
  const isOpen = folded?.open;
  if (folded) folded.open = true;
  await new Promise((done) => (folded ? folded.addEventListener('toggle', done) : done()));
  const what = (node) => node && (node.querySelector('canvas') || node.matches('canvas') ? 'image' : 'numbers');
  return [what(output.querySelector('.stack > :first-child')), folded && what(folded.lastChild), isOpen];
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
    modules: Page, datatype: str, shape: list[int], kind: str, seen: list[object]
) -> None:
    size = math.prod(shape)
    output = f"{{name: 'OUT', datatype: '{datatype}', shape: {shape}, values: new {kind}({size}).fill(7)}}"
    assert modules.run(VIEW % output) == seen


def test_text_that_breaks_off_in_a_string_is_told_at_once(modules: Page) -> None:
    broken = "NaN, " + json.dumps("x" * 60)[:-1]
    script = f"import('/console/static/parts/tensors.js').then((found) => found.parseJson({json.dumps(broken)}))"
    assert modules.run(f"{script}.then(() => '', (error) => error.name)") == "SyntaxError"


def test_sound_of_whole_numbers_is_as_loud_as_it_is(modules: Page) -> None:
    values = "Int16Array.from({length: 1000}, (_, at) => (at % 2 ? 16384 : -16384))"
    sound = (
        "import('/console/static/trying/answers.js').then(async (found) => {"
        f"  const output = {{name: 'audio', datatype: 'INT16', shape: [1000], values: {values}}};"
        "  const make = URL.createObjectURL;"
        "  let keptBlob = null;"
        "  URL.createObjectURL = (blob) => { keptBlob = blob; return make.call(URL, blob); };"
        "  found.showOutputs([output], {});"
        "  URL.createObjectURL = make;"
        "  const data = await keptBlob.arrayBuffer();"
        "  return [...new Int16Array(data).slice(22, 24)];"
        "})"
    )
    assert modules.run(sound) == [-16383, 16383]


@pytest.mark.parametrize(("shape", "is_picture"), [((2000, 2000), True), ((2100, 2000), False), ((16, 9000), False)])
def test_matrix_becomes_a_picture_when_somebody_opens_it_and_not_without_limit(
    modules: Page, shape: tuple[int, int], is_picture: bool
) -> None:
    output = f"{{name: 'OUT', datatype: 'FP32', shape: {list(shape)}, values: new Float32Array({shape[0] * shape[1]})}}"
    assert shown(modules, output, "canvas") == []
    assert shown(modules, output, "summary") == (["As an image"] if is_picture else [])
    opened = SHOWN.replace("  return", OPEN_ALL + "  return").replace("(found) =>", "async (found) =>")
    script = opened % {"output": output, "selector": '"canvas"', "labels": "null"}
    assert len(modules.run(script)) == is_picture


def test_very_long_text_is_cut_until_somebody_wants_all_of_it(modules: Page) -> None:
    output = "{name: 'OUT', datatype: 'BYTES', shape: [1], values: ['x'.repeat(4000000)]}"
    (text,) = shown(modules, output, "pre")
    assert len(text) == 100_000
    assert shown(modules, output, "summary") == ["3900000 more letters"]


EDGES = """import('/console/static/trying/pictures.js').then(async ({overlay}) => {
  const canvas = new OffscreenCanvas(480, 480);
  canvas.getContext('2d');
  const address = URL.createObjectURL(await canvas.convertToBlob());
  const box = {datatype: %s, values: %s};
  const node = overlay(address, box, null, {});
  const [image, drawn] = node.children;
  await image.decode();
  while (!drawn.width || drawn.width === 300) await new Promise((go) => setTimeout(go, 20));
  URL.revokeObjectURL(address);
  const {data} = drawn.getContext('2d').getImageData(0, 0, 480, 480);
  return [[240, 400], [1, 1], [240, 1]].map(([x, y]) => data[4 * (480 * y + x) + 3] > 0);
})"""


@pytest.mark.parametrize(
    ("datatype", "values", "places"),
    [
        ("FP32", "[0.5, 0.5, 1.02, 1.02]", [True, False, False]),  # it reaches over the edge
        ("FP32", "[0.5, 0.5, 0.9, 0.9, 240, 240, 300, 470]", [True, True, False]),  # pixels, one box of which is small
        ("INT32", "[0, 0, 4, 1]", [False, True, False]),
        ("INT32", "[0, 0, 1, 1]", [False, True, False]),
    ],
)
def test_boxes_are_shares_of_the_image_or_pixels_all_of_them(
    modules: Page, datatype: str, values: str, places: list[bool]
) -> None:
    assert modules.run(EDGES % (json.dumps(datatype), values)) == places
