"""Slow and failed requests in the browser, and what was in them while requests are recorded."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator

import pytest
from browser import Page
from console_address import console_of
from console_models import HOSTILE_TEXT
from PIL import Image
from running_server import RunningServer
from try_form import COUNT_ADDRESSES, HELD, MADE

HOLD_CONTENTS = """(() => {
  const {fetch} = window;
  const released = new Promise((resolve) => { window.release = resolve; });
  window.fetch = async (path, options) => {
    if (path.includes("/contents/")) await released;
    return fetch(path, options);
  };
})()"""
ENTRY = "[...document.querySelectorAll('details.entry')].find((entry) => entry.innerText.includes(%s))"


@pytest.fixture
def recording(server: RunningServer) -> Iterator[str]:
    """The id of a recording that runs meanwhile."""
    assert server.ask("POST", "/v2/recording/start", {})[0] == 200
    state = json.loads(server.ask("GET", "/v2/recording")[2])
    yield state["recording"]["id"]
    server.ask("POST", "/v2/recording/stop", {"discard": True})


def open_entry(page: Page, text: str) -> str:
    """Opens the line of a request; an expression for its text."""
    entry = ENTRY % json.dumps(text)
    page.until(f"!!{entry}")
    page.run(f"{entry}.open = true")
    page.until(f"{entry}.innerText.includes('To the model')")
    return f"{entry}.innerText"


def test_nothing_is_shown_of_what_was_in_a_request_without_a_recording(
    watched_page: Page, server: RunningServer
) -> None:
    page = watched_page
    server.infer("numbers", 700, 4242, request_id="unrecorded")
    page.go(console_of(server, "requests"))
    page.until_text("What was in a request is shown while requests are recorded.")
    text = open_entry(page, "unrecorded")
    assert "4242" not in page.run(text)
    assert not any("/contents/" in address for address in page.requested())


def test_recorded_request_shows_what_it_brought_and_got(page: Page, server: RunningServer, recording: str) -> None:
    server.infer("numbers", 700, 4242, request_id="kept-one")
    server.infer("numbers", 666, 9191, request_id="failed-one")
    page.go(console_of(server, "requests"))
    page.until_text("Requests are being recorded")
    text = open_entry(page, "kept-one")
    page.until(f"{text}.includes('Response')")
    said = page.run(text)
    assert "IN INT32 [1, 2]" in said
    assert "4242" in said
    assert "4243" in said  # which the model has made of it
    text = open_entry(page, "the number of the beast")
    page.until(f"{text}.includes('9191')")


def test_failures_that_are_not_kept_are_counted(page: Page, server: RunningServer) -> None:
    before = json.loads(server.ask("GET", "/console/api/requests/numbers")[2])["failed_counts"].get("numbers", 0)
    for _ in range(25):
        server.infer("numbers", 666, 1)
    page.go(console_of(server, "requests"))
    page.until_text(f"the last 20 of {before + 25}")


def test_what_the_server_could_not_read_is_among_the_refusals(page: Page, server: RunningServer) -> None:
    server.ask("POST", "/v1/chat/completions", {"model": "scribe", "messages": "nobody reads this"})
    page.go(console_of(server, "requests"))
    entry = ENTRY % json.dumps("'messages'")
    page.until(f"!!{entry}")
    assert "scribe" in page.run(f"{entry}.innerText")
    assert "Refused" in page.run(f"{entry}.innerText")


def test_refusals_of_generate_and_of_broken_json_are_listed(page: Page, server: RunningServer) -> None:
    connection = server.connect()
    wrong = [
        ("/v2/models/echo/generate", b'{"text_input"'),
        ("/v1/completions", b"{no JSON"),
        ("/v1/completions", b'{"model": "numbers", "prompt": "x"}'),
    ]
    for path, body in wrong:
        connection.request("POST", path, body)
        answer = connection.getresponse()
        answer.read()
        assert answer.status >= 400
    page.go(console_of(server, "requests"))
    page.until("[...document.querySelectorAll('.entry .name')].some((name) => name.innerText === 'no model named')")
    entry = ENTRY % json.dumps("Missing a colon")
    assert "Refused" in page.until(f"{entry}.innerText")
    page.until("!!" + ENTRY % json.dumps("'numbers' does not generate text"))
    nameless = ENTRY % json.dumps("no model named")
    page.run(f"({nameless}).open = true")
    assert page.run(f"({nameless}).querySelectorAll('a').length") == 0


def test_answer_that_a_stop_text_has_ended_is_not_called_cancelled(page: Page, server: RunningServer) -> None:
    asked = {"model": "talker", "prompt": "talk", "stop": ["word3 "]}
    status, _, answer = server.ask("POST", "/v1/completions", asked)
    assert (status, json.loads(answer)["choices"][0]["text"]) == (200, "word0 word1 word2 ")
    server.until(lambda: server.statistics("talker")["inference_stats"]["success"]["count"] == 1)
    listed = json.loads(server.ask("GET", "/console/api/requests/talker")[2])
    assert ([entry["model"] for entry in listed["slowest"]], listed["failed"]) == (["talker"], [])
    page.go(console_of(server, "model/talker/1/requests"))
    page.until_text("No request has failed.")


def test_request_of_a_language_model_shows_the_phases_of_its_engine(page: Page, server: RunningServer) -> None:
    asked = {"model": "scribe", "prompt": "Once upon a time", "max_tokens": 20, "ignore_eos": True}
    answer = json.loads(server.ask("POST", "/v1/completions", asked)[2])
    page.go(console_of(server, "model/scribe/1/requests"))
    text = open_entry(page, answer["id"])
    page.until(f"{text}.includes('altogether')")
    assert [word in page.run(text) for word in ("prefill", "decode")] == [True, True]


def test_hostile_content_is_text(page: Page, server: RunningServer, recording: str) -> None:
    tensor = {"name": "TEXT", "datatype": "BYTES", "shape": [1], "data": [HOSTILE_TEXT]}
    server.ask("POST", "/v2/models/echo/infer", {"id": "hostile", "inputs": [tensor]})
    page.go(console_of(server, "requests"))
    text = open_entry(page, "hostile")
    page.until(f"{text}.includes({json.dumps(HOSTILE_TEXT)})")
    assert page.run("document.querySelectorAll('main b[onmouseover], main script').length") == 0


def test_picture_that_comes_when_nobody_looks_any_more_is_given_back(
    page: Page, server: RunningServer, recording: str
) -> None:
    send_picture(server, "picture")
    page.run(COUNT_ADDRESSES)
    page.run("location.hash = '#/requests'")
    page.run(HOLD_CONTENTS)
    open_entry(page, "picture")
    page.run("location.hash = '#/server'")
    page.until_text("Flags in force")
    page.run("window.release()")
    page.until(f"{MADE} === 2")  # of the request and of its answer
    page.run("location.hash = '#/api'")
    page.until_text("openapi.json")
    page._call("HeapProfiler.collectGarbage")
    page.until(f"{HELD} === 0")


def send_picture(server: RunningServer, request_id: str) -> None:
    made = io.BytesIO()
    Image.new("RGB", (2, 2), (200, 20, 20)).save(made, "PNG")
    data = struct.pack("<I", len(made.getvalue())) + made.getvalue()
    tensor = {"name": "TEXT", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": len(data)}}
    head = json.dumps({"id": request_id, "inputs": [tensor]}).encode()
    connection = server.connect()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    connection.request("POST", "/v2/models/echo/infer", head + data, headers)
    assert connection.getresponse().status == 200


def test_content_is_gone_when_the_recording_ends(page: Page, server: RunningServer, recording: str) -> None:
    server.infer("numbers", 700, 4242, request_id="short-lived")
    page.go(console_of(server, "requests"))
    page.until_text("Requests are being recorded")
    server.ask("POST", "/v2/recording/stop", {"discard": True})
    text = open_entry(page, "short-lived")
    page.until(f"{text}.includes('is not kept')")
    assert "4242" not in page.run(text)
    page._browser.events.clear()  # a browser writes every answer of 404 into its log
