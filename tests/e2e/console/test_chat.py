"""A conversation with the shipped language model in the browser."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from browser import Page
from console_address import console_of
from kept_page import NO_VIEW
from running_server import RunningServer

KEEP_EVENTS = """(() => {
  const fetch = window.fetch;
  window.fetch = async (path, options) => {
    const answer = await fetch(path, options);
    if (path.includes("/chat/")) answer.clone().text().then((text) => { window.keptEvents = text; });
    return answer;
  };
})()"""
SPEED = r"/\d+ tokens · [\d.]+ tokens\/s · first after/"


@pytest.fixture(scope="module")
def first_view() -> str:
    return NO_VIEW


def open_chat(page: Page, server: RunningServer) -> None:
    page.go(console_of(server, "model/scribe/1/chat"))
    page.until("!!document.querySelector('[aria-label=Message]')")
    page.run("[...document.querySelectorAll('button')].find((one) => one.textContent === 'New conversation').click()")


def say(page: Page, text: str) -> None:
    page.type("[aria-label=Message]", text)
    page.press("Enter", code="Enter", windowsVirtualKeyCode=13)


def test_answer_is_streamed_with_its_speed(page: Page, server: RunningServer) -> None:
    open_chat(page, server)
    say(page, "Tell me about ships.")
    page.until("document.querySelectorAll('.turn').length === 2")
    page.until(
        "/\\d+ tokens · [\\d.]+ tokens\\/s · first after/.test(document.querySelector('.turn .meta').textContent)"
    )
    page.until("document.querySelector('#stop').hidden")
    assert page.run("document.querySelector('.turn.assistant .words').textContent.length") > 0
    say(page, "And then?")
    page.until("document.querySelectorAll('.turn').length === 4")
    page.until("document.querySelector('#stop').hidden")
    snippet = page.run("document.querySelector('.snippets').textContent")
    assert "Tell me about ships." in snippet


def test_stop_cancels_the_request_on_the_server(page: Page, server: RunningServer) -> None:
    open_chat(page, server)
    write_on_and_on(page)
    before, tokens, counted = ended(server), written_tokens(server), failures(server)
    say(page, "Write a very long story.")
    page.until("document.querySelector('.turn.assistant .words').textContent.length > 20")
    server.until(lambda: running(server) == 1)
    page.click("#stop")
    page.until("document.querySelector('.turn.assistant .meta').textContent.includes('stopped')", 60)
    server.until(lambda: running(server) == 0)
    server.until(lambda: ended(server) > before)  # counted a little later than the engine lets go of it
    assert ended(server) == before + 1
    assert written_tokens(server) - tokens < 800  # of the 900 that it was asked for
    last = json.loads(server.ask("GET", "/console/api/requests/scribe")[2])["failed"][0]
    assert (last["reason"], last["id"][:8]) == ("CANCELED", "chatcmpl")
    assert failures(server) == (counted[0] + 1, counted[1])


def test_stop_stays_in_its_place_while_the_answer_grows(page: Page, server: RunningServer) -> None:
    open_chat(page, server)
    write_on_and_on(page)
    page.run("document.querySelector('.chat').style.maxWidth = '20rem'")  # any text of so many tokens is high then
    size = "document.querySelector('.chat').scrollHeight"
    empty = page.run(size)
    say(page, "Write a very long story.")
    page.until("document.querySelector('.turn.assistant .words').textContent.length > 20")
    place = "document.querySelector('#stop').getBoundingClientRect().top"
    before = page.run(place)
    page.until(f"{size} > {empty + 30}", 60)  # more than can be seen at once
    assert page.run(place) == before
    seen = (
        "(() => { const c = document.querySelector('.chat'); return c.scrollHeight - c.scrollTop - c.clientHeight; })()"
    )
    page.until(f"{seen} < 60")  # and the last words can be seen
    page.click("#stop")
    page.until("document.querySelector('#stop').hidden")


def test_snippet_with_parameters_of_our_own_runs(page: Page, server: RunningServer) -> None:
    open_chat(page, server)
    page.run(
        "document.querySelector(\"[aria-label='Most tokens']\").value = '20',"
        "document.querySelector(\"[aria-label='Other parameters as JSON']\").value = '{\"top_k\": 5}'"
    )
    say(page, "Hello.")
    page.until("document.querySelector('#stop').hidden && !!document.querySelector('.snippets')")
    chosen = "document.querySelector(\"[aria-label='The request as']\")"
    page.run(f"({chosen}.value = 'Python, openai', {chosen}.dispatchEvent(new Event('change')))")
    text = page.run("document.querySelector('.snippets pre').textContent")
    assert 'extra_body={"top_k": 5}' in text
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_closing_the_page_cancels_its_requests_and_ends_its_stream(
    browser: object, page: Page, server: RunningServer
) -> None:
    other = browser.open(console_of(server, "model/scribe/1/chat"))  # type: ignore[attr-defined]
    other.until("!!document.querySelector('[aria-label=Message]')")
    write_on_and_on(other)
    say(other, "Write a very long story.")
    other.until("document.querySelector('.turn.assistant .words').textContent.length > 20")
    server.until(lambda: running(server) == 1)
    other.close()
    server.until(lambda: running(server) == 0)


def test_of_several_answers_the_first_is_shown(page: Page, server: RunningServer) -> None:
    open_chat(page, server)
    page.run(
        "document.querySelector(\"[aria-label='Other parameters as JSON']\").value = '{\"n\": 2}',"
        "document.querySelector('[aria-label=Seed]').value = '7'"
    )
    page.run(KEEP_EVENTS)
    say(page, "Tell me about ships.")
    page.until("document.querySelector('#stop').hidden && window.keptEvents !== undefined")
    said: dict[int, str] = {0: "", 1: ""}
    for line in page.until("window.keptEvents").split("\n"):
        if line.startswith("data: {"):
            for choice in json.loads(line.removeprefix("data: "))["choices"]:
                said[choice["index"]] += choice["delta"].get("content") or ""
    assert said[0]
    assert said[1]
    assert page.run("document.querySelector('.turn.assistant .words').textContent") == said[0]


def write_on_and_on(page: Page) -> None:
    """The shipped model would end its answer after half a second."""
    page.run(
        "document.querySelector(\"[aria-label='Most tokens']\").value = '900',"
        "document.querySelector(\"[aria-label='Other parameters as JSON']\").value = '{\"ignore_eos\": true}'"
    )


def ended(server: RunningServer) -> int:
    """Requests that are over, whatever became of them."""
    stats = server.statistics("scribe")["inference_stats"]
    return sum(stats[kind]["count"] for kind in ("success", "fail"))


def failures(server: RunningServer) -> tuple[float, float]:
    """Requests that were cancelled, and those that the model has failed."""
    cancelled, failed = (
        server.value("nv_inference_request_failure", model="scribe", version="1", reason=reason)
        for reason in ("CANCELED", "BACKEND")
    )
    return cancelled, failed


def written_tokens(server: RunningServer) -> float:
    """Tokens that the engine has made so far."""
    return sum(server.metric("vllm:generation_tokens_total").values())


def running(server: RunningServer) -> float:
    """Sequences that the engine works on."""
    return sum(server.metric("vllm:num_requests_running").values())


def test_question_without_an_answer_is_not_sent_again(page: Page, server: RunningServer) -> None:
    open_chat(page, server)
    page.run(
        "(() => { const fetch = window.fetch; window.sent = []; window.fetch = (path, options) => {"
        " if (!path.includes('/chat/')) return fetch(path, options);"
        " window.sent.push(JSON.parse(options.body).messages.map(({content}) => content).join('|'));"
        " return window.sent.length === 1 ? Promise.reject(new TypeError('gone')) : fetch(path, options); }; })()"
    )
    say(page, "First.")
    page.until("document.querySelector('.turn .meta')?.textContent === 'The server does not answer.'")
    say(page, "Second.")
    page.until(f"[...document.querySelectorAll('.turn .meta')].some((meta) => {SPEED}.test(meta.textContent))")
    assert page.run("window.sent") == ["First.", "Second."]


def test_parameter_out_of_its_range_is_not_sent(page: Page, server: RunningServer) -> None:
    open_chat(page, server)
    page.run("document.querySelector('#parameters').open = true")
    page.type("[aria-label='Temperature']", "9")
    say(page, "Hello.")
    page.until("!document.querySelector('[aria-label=Temperature]').validity.valid")
    assert page.run("document.querySelectorAll('.turn').length") == 0
    page.type("[aria-label='Temperature']", "0.75")
    say(page, "Hello.")
    page.until("document.querySelectorAll('.turn').length === 2")
    page.until("document.querySelector('#stop').hidden")
