"""Trying a model of each kind of input in the browser."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from browser import Browser, Page
from console_address import console_of
from console_models import HOSTILE_TEXT
from PIL import Image
from running_server import RunningServer
from try_form import (
    COUNT_ADDRESSES,
    HELD,
    answer,
    beep,
    open_form,
    run_snippet,
    send,
    set_field,
    snippet,
    until_answered,
)


def test_numbers_in_a_grid(page: Page, server: RunningServer) -> None:
    open_form(page, server, "numbers")
    set_field(page, "[aria-label='IN value 1']", "41")
    send(page)
    until_answered(page, "42")
    page.until_text("Where the time went")
    assert "curl" in page.run("document.querySelector('.snippets').textContent")


def test_numbers_as_json(page: Page, server: RunningServer) -> None:
    open_form(page, server, "numbers")
    set_field(page, "[aria-label='How to give IN']", "json")
    page.type("[aria-label='IN as JSON']", "[7, 8, 9]")
    send(page)
    until_answered(page, "10")
    assert "[1, 3]" in answer(page)


def test_hostile_text_comes_back_as_text(page: Page, server: RunningServer) -> None:
    open_form(page, server, "echo")
    page.type("[aria-label=TEXT]", HOSTILE_TEXT)
    send(page)
    until_answered(page, HOSTILE_TEXT)
    assert page.run("document.querySelectorAll('main b[onmouseover], main script').length") == 0


def test_image_becomes_pixels_and_classes_become_bars(page: Page, server: RunningServer, tmp_path: Path) -> None:
    picture = tmp_path / "blue.png"
    Image.new("RGB", (32, 24), (10, 20, 250)).save(picture)
    open_form(page, server, "classes")
    page.choose_file("input[type=file]", picture)
    page.until("!!document.querySelector('img.preview')")
    send(page)
    page.until("document.querySelectorAll('.bars .lane').length === 3")
    shown = answer(page).split("\n")
    assert shown.index("blue") < shown.index("<u>green</u>") < shown.index("red")


@pytest.mark.parametrize(("model", "shape"), [("one_picture", "1 3 8 8"), ("pictures", "1 8 8 3")])
def test_image_becomes_a_batch_of_one(
    page: Page, server: RunningServer, tmp_path: Path, model: str, shape: str
) -> None:
    picture = tmp_path / "blue.png"
    Image.new("RGB", (32, 24), (0, 51, 255)).save(picture)
    open_form(page, server, model)
    page.choose_file("input[type=file]", picture)
    send(page)
    until_answered(page, "MEANS")
    shown = " ".join(answer(page).split())
    assert shape in shown
    assert "0 0.2 1" in shown


def test_boxes_and_masks_are_drawn_on_the_image(page: Page, server: RunningServer, tmp_path: Path) -> None:
    picture = tmp_path / "sea.png"
    Image.new("RGB", (60, 40), (200, 220, 255)).save(picture)
    open_form(page, server, "detector")
    page.choose_file("input[type=file]", picture)
    send(page)
    page.until("!!document.querySelector('.overlay canvas')")
    until_answered(page, "<i>ship</i>")
    pixels = (
        "(() => { const c = document.querySelector('.overlay canvas'); if (!c.width) return null;"
        " const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        " const at = (x, y) => d[4 * (Math.round(y * c.height) * c.width + Math.round(x * c.width)) + 3];"
        " return [at(0.4, 0.5), at(0.9, 0.9)]; })()"
    )
    inside, outside = page.until(pixels)
    assert inside > 0
    assert outside == 0
    assert str(picture.stat().st_size) in answer(page)


def test_what_is_drawn_lies_on_a_tall_image_as_on_any_other(page: Page, server: RunningServer, tmp_path: Path) -> None:
    picture = tmp_path / "mast.png"
    Image.new("RGB", (60, 600), (200, 220, 255)).save(picture)
    open_form(page, server, "detector")
    page.choose_file("input[type=file]", picture)
    send(page)
    page.until("!!document.querySelector('.overlay canvas')?.width")
    both = "[...document.querySelectorAll('.overlay img, .overlay canvas')]"
    fits = f"{both}.map((one) => getComputedStyle(one).objectFit)"
    sizes = f"{both}.map((one) => [one.clientWidth, one.clientHeight].join())"
    assert page.run(fits) == ["contain", "contain"]
    assert len(set(page.run(sizes))) == 1


def test_image_that_was_taken_back_is_not_drawn_on(page: Page, server: RunningServer, tmp_path: Path) -> None:
    picture = tmp_path / "sea.png"
    Image.new("RGB", (60, 40), (200, 220, 255)).save(picture)
    open_form(page, server, "detector")
    page.choose_file("input[type=file]", picture)
    page.until("!!document.querySelector('img.preview')")
    set_field(page, "[aria-label='How to give image']", "text")
    page.type("[aria-label=image]", "no picture")
    send(page)
    until_answered(page, "<i>ship</i>")
    assert page.run("document.querySelectorAll('.overlay').length") == 0


def test_on_a_phone_the_answer_stands_below_the_request(browser: Browser, server: RunningServer) -> None:
    page = browser.open(console_of(server, "model/numbers/1/try"), width=360)
    page.until("!!document.querySelector('form.card')")
    send(page)
    page.until_text("Where the time went")
    titles = page.run("[...document.querySelectorAll('main h2')].map((title) => title.textContent)")
    assert titles == ["Request", "Answer", "Where the time went"]
    edges = "[...document.querySelectorAll('fieldset, fieldset *')].map((one) => one.getBoundingClientRect().right)"
    assert max(page.run(edges)) <= page.run("document.querySelector('form.card').getBoundingClientRect().right")
    tabs = "[...document.querySelectorAll('.tabs a')].map((one) => one.getBoundingClientRect().right)"
    assert max(page.run(tabs)) <= 360
    page.close()


def test_sound_goes_in_and_comes_out(page: Page, server: RunningServer, tmp_path: Path) -> None:
    open_form(page, server, "sound")
    page.choose_file("input[type=file]", beep(tmp_path / "beep.wav"))
    send(page)
    page.until("!!document.querySelector('[aria-label=Answer] audio')")
    until_answered(page, "8000 samples")
    assert "1600" in answer(page)


def test_what_was_heard_is_given_back(page: Page, server: RunningServer, tmp_path: Path) -> None:
    open_form(page, server, "sound")
    page.run(COUNT_ADDRESSES)
    for number in range(3):
        page.choose_file("input[type=file]", beep(tmp_path / f"beep{number}.wav"))
        page.until("!!document.querySelector('fieldset audio')")
        page.run("document.querySelector('[aria-label=Answer] audio')?.setAttribute('data-old', '')")
        send(page)
        page.until("!!document.querySelector('[aria-label=Answer] audio:not([data-old])')")
        assert page.run(HELD) == 2  # the file that is sent, and the answer
    set_field(page, "[aria-label='How to give audio']", "json")
    page.until(f"{HELD} === 1")
    page.run("location.hash = '#/requests'")
    page.until_text("Slowest")
    page.until(f"{HELD} === 0")


def test_stream_comes_as_it_is_made_and_can_be_stopped(page: Page, server: RunningServer) -> None:
    open_form(page, server, "countdown")
    set_field(page, "[aria-label='IN value 1']", "3")
    send(page)
    until_answered(page, "3 responses")
    page.until_text("Where the time went")
    before = cancelled(server, "countdown")
    set_field(page, "[aria-label='IN value 1']", "1000")
    send(page)
    page.until("/\\b[5-9] responses/.test(document.querySelector('[aria-label=Answer]').innerText)")
    page.run("[...document.querySelectorAll('form.card button')].find((one) => one.textContent === 'Stop').click()")
    until_answered(page, "Stopped.")
    server.until(lambda: cancelled(server, "countdown") > before)
    server.until(lambda: last_failure(server, "countdown") == "CANCELED")


def last_failure(server: RunningServer, model: str) -> str:
    """How the page of requests calls the last one that failed; "" where none did."""
    failed = json.loads(server.ask("GET", f"/console/api/requests/{model}")[2])["failed"]
    return str(failed[0]["reason"]) if failed else ""


def test_one_response_is_counted_as_one(page: Page, server: RunningServer) -> None:
    open_form(page, server, "countdown")
    set_field(page, "[aria-label='IN value 1']", "1")
    send(page)
    until_answered(page, "1 response in")


def test_form_says_that_it_waits_and_that_it_was_stopped(page: Page, server: RunningServer) -> None:
    open_form(page, server, "numbers")
    set_field(page, "[aria-label='IN value 1']", "5")
    send(page)
    until_answered(page, "Answered in")
    page.run(
        "(() => { const fetch = window.fetch; window.fetch = async (path, options) => {"
        " if (path.includes('/infer')) await new Promise((go) => setTimeout(go, 1500));"
        " return fetch(path, options); }; })()"
    )
    send(page)
    until_answered(page, "Waiting for the answer.")
    assert "Answered in" not in answer(page)
    page.run("[...document.querySelectorAll('form.card button')].find((one) => one.textContent === 'Stop').click()")
    until_answered(page, "Stopped.")
    assert "Waiting" not in answer(page)


def cancelled(server: RunningServer, model: str) -> int:
    """Responses that were not wanted any more."""
    stats = server.statistics(model)
    return sum(entry["cancel"]["count"] for entry in stats["response_stats"].values())


def test_ensemble_shows_the_steps_of_the_request(page: Page, server: RunningServer) -> None:
    open_form(page, server, "pipeline")
    set_field(page, "[aria-label='IN value 1']", "5")
    send(page)
    until_answered(page, "7")
    page.until_text("Steps of this request")
    assert page.run("document.querySelectorAll('.wf .name').length") == 3


def test_second_request_of_a_sequence_goes_on_with_it(page: Page, server: RunningServer) -> None:
    open_form(page, server, "tally")
    boxes = "[...document.querySelectorAll('.row.field input[type=checkbox]')]"
    ticked = f"{boxes}.map((box) => box.checked).join()"
    for given, is_last, total, left in ((1000, False, 1000, "false,false"), (200, True, 1200, "true,false")):
        set_field(page, "[aria-label='IN value 1']", str(given))
        page.run(f"{boxes}[1].checked = {json.dumps(is_last)}")
        send(page)
        until_answered(page, str(total))
        page.until(f"{ticked} === '{left}'")
    set_field(page, "[aria-label='IN value 1']", "34")
    send(page)
    until_answered(page, "34")
    assert answer(page).split()[-1] == "34"


def test_error_of_the_model_is_shown(page: Page, server: RunningServer) -> None:
    open_form(page, server, "numbers")
    set_field(page, "[aria-label='IN value 1']", "666")
    send(page)
    until_answered(page, "the number of the beast <img src=x onerror=alert(4)>")
    assert page.run("document.querySelectorAll('main img').length") == 0
    page._browser.events.clear()  # a browser writes every answer of 500 into its log


CELL = "document.querySelector(%s)"
LARGE = (1 << 53) + 1


@pytest.mark.parametrize("form", ["grid", "json"])
def test_large_whole_numbers_stay_what_they_are(page: Page, server: RunningServer, tmp_path: Path, form: str) -> None:
    open_form(page, server, "longs")
    if form == "json":
        set_field(page, "[aria-label='How to give IN']", "json")
        page.type("[aria-label='IN as JSON']", f"[{LARGE}, -{LARGE}]")
    else:
        set_field(page, "[aria-label='IN value 1']", str(LARGE))
        set_field(page, "[aria-label='IN value 2']", str(-LARGE))
    send(page)
    until_answered(page, f"-{LARGE}")
    assert answer(page).count(str(LARGE)) == 2
    for way in ("curl", "Python, tritonclient"):
        assert run_snippet(page, tmp_path, way).count(str(LARGE)) == 2
    script = snippet(page, "JavaScript")
    body = next(line for line in script.split("\n") if line.startswith("  body: "))
    sent = page.run(f"({body.removeprefix('  body: ').removesuffix(',')})")
    assert json.loads(sent)["inputs"][0]["data"] == [LARGE, -LARGE]


@pytest.mark.parametrize("value", [1 << 63, -(1 << 63) - 1])
def test_whole_number_of_64_bits_that_is_out_of_range_is_refused(page: Page, server: RunningServer, value: int) -> None:
    open_form(page, server, "longs")
    set_field(page, "[aria-label='IN value 1']", str(value))
    send(page)
    until_answered(page, f"IN: {value} is not between {-(1 << 63)} and {(1 << 63) - 1}, as INT64 is.")
    set_field(page, "[aria-label='IN value 1']", str((1 << 63) - 1))
    set_field(page, "[aria-label='IN value 2']", str(-(1 << 63)))
    send(page)
    until_answered(page, str((1 << 63) - 1))
    assert str(-(1 << 63)) in answer(page)


@pytest.mark.parametrize("value", [1 << 31, -(1 << 31) - 1])
def test_field_takes_no_whole_number_that_is_out_of_range(page: Page, server: RunningServer, value: int) -> None:
    open_form(page, server, "numbers")
    cell = "[aria-label='IN value 1']"
    set_field(page, cell, str(value))
    send(page)
    page.until(f"document.activeElement === document.querySelector({json.dumps(cell)})")
    state = page.run(
        f"(({{validity}}) => [validity.rangeOverflow, validity.rangeUnderflow])({CELL % json.dumps(cell)})"
    )
    assert state == [value > 0, value < 0]
    assert "The answer appears here." in answer(page)
    set_field(page, cell, str((1 << 31) - 2))
    send(page)
    until_answered(page, str((1 << 31) - 1))


def test_large_whole_numbers_in_streams_and_bodies(modules: Page) -> None:
    script = "import('/console/static/parts/tensors.js').then((found) => found.writeJson(found.parseJson(%s)))"
    text = f'{{"data":[{LARGE},1.5,-{LARGE},"{LARGE}",null,true]}}'
    assert modules.run(script % json.dumps(text)) == text


def test_half_precision_goes_as_bytes(page: Page, server: RunningServer, tmp_path: Path) -> None:
    open_form(page, server, "halves")
    for at, value in enumerate(("-1.5", "65504", "0.00006"), 1):
        set_field(page, f"[aria-label='IN value {at}']", value)
    send(page)
    until_answered(page, "65504")
    assert answer(page).split("\n")[-1].split() == ["-1.5", "65504", "0.000060022"]
    assert "6.55e+04" in run_snippet(page, tmp_path, "Python, tritonclient").replace("6.550e", "6.55e")
    for way in ("curl", "JavaScript"):
        assert "--data-binary @request.bin" in snippet(page, way) or 'readFile("request.bin")' in snippet(page, way)


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_every_half_is_read_and_written_as_it_is(modules: Page, datatype: str) -> None:
    script = """import('/console/static/parts/tensors.js').then((found) => {
      const bits = Uint16Array.from({length: 65536}, (_, at) => at);
      const values = [...found.decode(%(kind)s, bits.buffer)];
      const numbers = values.map((value) => (Number.isNaN(value) ? 0 : value));
      const {body} = found.encodeRequest([{name: "x", datatype: %(kind)s, shape: [65536], data: numbers}], {}, true);
      return body.arrayBuffer().then((all) => [
        [...new Uint16Array(all.slice(all.byteLength - 131072))],
        values.map((value) => (Number.isFinite(value) ? value : String(value))),
      ]);
    })"""
    written, values = modules.run(script % {"kind": json.dumps(datatype)})
    patterns = np.arange(65536, dtype=np.uint16)
    wide = (patterns.astype(np.uint32) << 16).view(np.float32)
    known = patterns.view(np.float16).astype(np.float32) if datatype == "FP16" else wide
    read = np.array([float(value) for value in values], np.float32)
    assert np.array_equal(read, known, equal_nan=True)
    is_number = ~np.isnan(known)
    assert np.array_equal(np.array(written, np.uint16)[is_number], patterns[is_number])


@pytest.mark.parametrize("value", ['"abc"', '"1"', "null", "true"])
def test_a_half_that_is_no_number_is_named(page: Page, server: RunningServer, value: str) -> None:
    open_form(page, server, "halves")
    set_field(page, "[aria-label='How to give IN']", "json")
    page.type("[aria-label='IN as JSON']", f"[1, {value}, 2]")
    send(page)
    until_answered(page, f"IN: {value} is no number.")


def test_optional_input_is_sent_when_somebody_fills_it_in(page: Page, server: RunningServer) -> None:
    open_form(page, server, "hinted")
    send(page)
    until_answered(page, "HINT")
    assert answer(page).split("\n")[-1].strip() == "-1"
    set_field(page, "[aria-label='MORE value 1']", "4711")
    send(page)
    until_answered(page, "4711")


def test_stream_that_fails_at_once_tells_its_error_alone(page: Page, server: RunningServer) -> None:
    open_form(page, server, "countdown")
    set_field(page, "[aria-label='IN value 1']", "666")
    send(page)
    until_answered(page, "no such number")
    assert "data:" not in answer(page)
    assert "phases" not in answer(page)
    page._browser.events.clear()  # a browser writes every answer of 400 or 500 into its log


def test_language_model_is_asked_to_stream_unless_its_box_is_unticked(page: Page, server: RunningServer) -> None:
    open_form(page, server, "scribe")
    page.type("[data-input=text_input] textarea", "Once upon a time")
    page.type("[data-input=sampling_parameters] textarea", '{"max_tokens": 8, "ignore_eos": true}')
    send(page)
    until_answered(page, "8 responses in")
    page.click("[aria-label='Send stream']")
    send(page)
    until_answered(page, "1 response in")
    page.until_text("first response")
