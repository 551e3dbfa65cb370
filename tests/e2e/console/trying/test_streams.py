"""Streams in "Try it" that are more than text and numbers: pictures, halves, errors in between, and what breaks off."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from browser import Page
from running_server import RunningServer
from try_form import COUNT_ADDRESSES, HELD, answer, open_form, run_in, send, set_field, snippet, until_answered

PICTURES = "document.querySelectorAll('[aria-label=Answer] img.preview').length"
ALERTS = "[...document.querySelectorAll('[aria-label=Answer] [role=alert]')].map((one) => one.textContent)"


def ask_for(page: Page, slides: int) -> None:
    set_field(page, "[aria-label='IN value 1']", str(slides))
    send(page)


def test_pictures_and_halves_come_in_a_stream(page: Page, server: RunningServer) -> None:
    open_form(page, server, "slides")
    page.run(COUNT_ADDRESSES)
    ask_for(page, 3)
    until_answered(page, "3 responses in")
    page.until(f"{PICTURES} === 3")
    page.until("[...document.querySelectorAll('[aria-label=Answer] img')].every((one) => one.naturalWidth === 1)")
    assert " ".join(answer(page).split()).count("HALVES FP16 [2]") == 3
    assert "2 0.5" in " ".join(answer(page).split())
    page.until_text("Where the time went")
    assert page.run(HELD) == 3
    ask_for(page, 1)
    until_answered(page, "1 response in")
    page.until(f"{HELD} === 1")


def test_error_between_two_responses_ends_nothing(page: Page, server: RunningServer) -> None:
    open_form(page, server, "slides")
    ask_for(page, 2)
    until_answered(page, "2 responses in")
    torn = "one slide is torn <img src=x onerror=alert(5)>"
    assert page.run(ALERTS) == [torn]
    kinds = "[...document.querySelector('[aria-label=Answer] .stack .stack').children].map((one) => one.className)"
    assert page.run(kinds) == ["event", "notice bad", "event"]


def test_responses_behind_an_error_at_the_beginning_are_shown(page: Page, server: RunningServer) -> None:
    open_form(page, server, "slides")
    ask_for(page, -2)
    until_answered(page, "2 responses in")
    assert page.run(ALERTS)[0] == "no slide in front"
    assert page.run(PICTURES) == 2
    page._browser.events.clear()  # a browser writes every answer of 400 or 500 into its log


BREAK_OFF = """(() => {
  const event = {outputs: [{name: "OUT", datatype: "INT32", shape: [1], data: [4711]}]};
  window.fetch = async () => new Response(new ReadableStream({
    start(controller) {
      controller.enqueue(new TextEncoder().encode(`data: ${JSON.stringify(event)}\\n\\n`));
      window.breakOff = () => controller.error(new TypeError("network error"));
    },
  }), {headers: {"Content-Type": "text/event-stream"}});
})()"""


def test_what_has_come_stays_when_a_stream_breaks_off(page: Page, server: RunningServer) -> None:
    open_form(page, server, "countdown")
    page.run(BREAK_OFF)
    send(page)
    until_answered(page, "4711")
    page.run("window.breakOff()")
    page.until(f"{ALERTS}.length === 1")
    assert "network error" in answer(page)
    assert "4711" in answer(page)
    assert "1 response in" in answer(page)


@pytest.mark.parametrize("way", ["curl", "JavaScript"])
def test_snippet_of_a_stream_with_halves_gets_them(page: Page, server: RunningServer, tmp_path: Path, way: str) -> None:
    open_form(page, server, "slides")
    ask_for(page, 1)
    until_answered(page, "1 response in")
    said = run_in(tmp_path, snippet(page, way), way)
    assert said.count("binary: ") == 1
    assert '"binary_data_size":4' in said


LONG = """(async () => {
  const {events} = await import('/console/static/parts/api.js');
  const {readable, writable} = new TransformStream();
  const writer = writable.getWriter();
  const text = new TextEncoder();
  (async () => {
    for (const piece of %s) await writer.write(text.encode(piece));
    await writer.close();
  })();
  const found = [];
  for await (const event of events({body: readable})) found.push(event);
  return found;
})()"""


def test_events_are_read_however_they_are_cut(modules: Page) -> None:
    whole = 'data: {"a": "b: c\u2028d"}\nbinary: QUI=\n\nevent: explain\ndata: {}\n\n'
    found = [{"data": '{"a": "b: c\u2028d"}', "binary": "QUI="}, {"event": "explain", "data": "{}"}]
    for pieces in ([whole], list(whole), [whole[:9], whole[9:40], whole[40:]]):
        assert modules.run(LONG % json.dumps(pieces)) == found
