"""Values that are not plain numbers of their datatype, on their way in and out."""

from __future__ import annotations

import json
import struct
import wave
from pathlib import Path

import pytest
from browser import Page
from PIL import Image
from running_server import RunningServer
from try_form import answer, open_form, run_in, send, set_field, snippet, until_answered


def test_numbers_beyond_json_are_shown_in_a_stream(page: Page, server: RunningServer) -> None:
    open_form(page, server, "beyond_json")
    send(page)
    until_answered(page, "1 response in")
    shown = answer(page)
    assert "NaN Infinity -Infinity 0.5" in " ".join(shown.split())
    assert 'NaN "Infinity"' in shown  # the text of its own output
    page.until_text("Where the time went")


def test_numbers_beyond_json_are_read_between_texts_that_look_like_them(modules: Page) -> None:
    text = (
        '{"outputs": [{"name": "NaN", "datatype": "FP32", "data": [[NaN, -Infinity], [Infinity, 1]]},'
        r' {"name": "b", "datatype": "BYTES", "data": ["NaN", "a \\", "-Infinity", "\" NaN"]}]}'
    )
    script = (
        "import('/console/static/parts/tensors.js').then(({outputsOf, parseJson}) =>"
        f" outputsOf(parseJson({json.dumps(text)})).map(({{values}}) => values.map(String)))"
    )
    numbers, texts = modules.run(script)
    assert numbers == ["NaN", "-Infinity", "Infinity", "1"]
    assert texts == ["NaN", "a \\", "-Infinity", '" NaN']


def test_picture_for_a_model_that_answers_in_halves(page: Page, server: RunningServer, tmp_path: Path) -> None:
    Image.new("RGB", (32, 24), (51, 102, 255)).save(tmp_path / "blue.png")
    open_form(page, server, "photo_in_halves")
    page.choose_file("input[type=file]", tmp_path / "blue.png")
    page.type("[aria-label=NOTE]", "here")
    send(page)
    until_answered(page, "here")
    assert "51 102 255" in " ".join(answer(page).split())


@pytest.mark.parametrize(
    ("model", "given", "said"),
    [
        ("numbers", "[1, 2147483648]", "IN: 2147483648 is not between -2147483648 and 2147483647, as INT32 is."),
        ("numbers", "[1.5]", "IN: 1.5 is no whole number."),
        ("longs", "[1, -9223372036854775809]", "IN: -9223372036854775809 is not between"),
        ("halves", "[1, 1e400, 2]", "IN: Infinity is no number."),
        ("halves", "[1, 65520, 2]", "IN: 65520 is not between -65504 and 65504, as FP16 is."),
        ("brain_floats", "[1, 3.4e38, 2]", "IN: 3.4e+38 is not between"),
    ],
)
def test_number_that_does_not_fit_is_refused_in_json_too(
    page: Page, server: RunningServer, model: str, given: str, said: str
) -> None:
    open_form(page, server, model)
    set_field(page, "[aria-label='How to give IN']", "json")
    page.type("[aria-label='IN as JSON']", given)
    send(page)
    until_answered(page, said)


def test_empty_cell_is_refused_and_stays_empty(page: Page, server: RunningServer) -> None:
    open_form(page, server, "numbers")
    set_field(page, "[aria-label='IN value 2']", "")
    send(page)
    until_answered(page, 'IN: "" is no whole number.')
    set_field(page, ".field input.narrow", "6")
    page.until("!!document.querySelector(\"[aria-label='IN value 6']\")")
    assert page.run("document.querySelector(\"[aria-label='IN value 2']\").value") == ""
    set_field(page, "[aria-label='IN value 2']", "41")
    send(page)
    until_answered(page, "42")


@pytest.mark.parametrize(("model", "given"), [("with_ids", str((1 << 63) + 1)), ("with_names", "it's 12")])
def test_sequence_has_the_id_that_was_written(
    page: Page, server: RunningServer, tmp_path: Path, model: str, given: str
) -> None:
    open_form(page, server, model)
    set_field(page, "[aria-label=Sequence]", given)
    send(page)
    until_answered(page, given)
    for way in ("curl", "Python, tritonclient"):
        assert given in run_in(tmp_path, snippet(page, way), way)


def test_id_of_a_sequence_that_does_not_fit_is_refused(page: Page, server: RunningServer) -> None:
    open_form(page, server, "with_ids")
    set_field(page, "[aria-label=Sequence]", str(1 << 64))
    send(page)
    until_answered(page, f"Sequence: {1 << 64} is not between 0 and {(1 << 64) - 1}, as UINT64 is.")


def test_both_channels_of_a_sound_are_heard(page: Page, server: RunningServer, tmp_path: Path) -> None:
    path = tmp_path / "right.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((2, 2, 16000, 0, "NONE", ""))
        file.writeframes(struct.pack("<hh", 0, 16384) * 1600)
    open_form(page, server, "sound")
    page.choose_file("input[type=file]", path)
    send(page)
    page.until("!!document.querySelector('[data-output=loudest] td')")
    loudest = float(page.run("document.querySelector('[data-output=loudest] td').textContent"))
    assert loudest == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize(
    ("datatype", "most"),
    [("FP16", "65504"), ("BF16", "3.3895313892515355e38"), ("FP32", "3.4028234663852886e38"), ("FP64", "1.7e308")],
)
def test_largest_number_of_a_type_is_taken(modules: Page, datatype: str, most: str) -> None:
    script = (
        "import('/console/static/trying/written.js').then(({fitting}) =>"
        f" [{most}, -{most}, 1.01 * {most}, -1.01 * {most}, 10n ** 400n].map((value) => {{"
        f" try {{ return fitting({{name: 'N', datatype: '{datatype}'}}, value) === value; }}"
        " catch { return 'refused'; } }))"
    )
    beyond = [True, True] if datatype == "FP64" else ["refused", "refused"]
    assert modules.run(script) == [True, True, *beyond, "refused"]


TWO_FILES = """import('/console/static/trying/files.js').then(async ({FILE_WAYS}) => {
  let image = '';
  const picked = (address) => (image = address);
  const [one, other] = ['a', 'b'].map((name) => FILE_WAYS.file({name, dims: [1]}, {max_batch_size: 0}, picked));
  const give = async (way, ...files) => {
    const given = new DataTransfer();
    for (const file of files) given.items.add(file);
    const input = way.node.querySelector('input');
    input.files = given.files;
    input.dispatchEvent(new Event('change'));
    const shown = way.node.querySelector('img');
    if (shown && !shown.complete) await new Promise((done) => (shown.onload = shown.onerror = done));
    return image.slice(0, 5);
  };
  const [picture, text] = ['image/png', 'text/plain'].map((type) => new File(['x'], 'f', {type}));
  const seen = [await give(one, picture), await give(other, text), await give(other)];
  other.stop();
  seen.push(image.slice(0, 5), await give(one));
  one.stop();
  return seen;
})"""


def test_image_of_one_field_stays_when_another_gets_a_file(modules: Page) -> None:
    assert modules.run(TWO_FILES) == ["blob:", "blob:", "blob:", "blob:", ""]
