"""A conversation with the shipped language model in the browser."""

from __future__ import annotations

from browser import Page
from console_address import console_of
from running_server import RunningServer

SPEED = r"/\d+ tokens · [\d.]+ tokens\/s · first after/"


def open_chat(page: Page, server: RunningServer) -> None:
    page.go(console_of(server, "model/scribe/1/chat"))
    page.until("!!document.querySelector('[aria-label=Message]')")


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
    before = server.statistics("scribe")["inference_stats"]
    say(page, "Write a very long story.")
    page.until("document.querySelector('.turn.assistant .words').textContent.length > 20")
    server.until(lambda: running(server) == 1)
    page.click("#stop")
    page.until("document.querySelector('.turn.assistant .meta').textContent.includes('stopped')")
    server.until(lambda: running(server) == 0)
    after = server.statistics("scribe")["inference_stats"]
    ended = sum(after[kind]["count"] - before[kind]["count"] for kind in ("success", "fail"))
    assert ended == 1


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


def write_on_and_on(page: Page) -> None:
    """The shipped model would end its answer after half a second."""
    page.run(
        "document.querySelector(\"[aria-label='Most tokens']\").value = '900',"
        "document.querySelector(\"[aria-label='Other parameters as JSON']\").value = '{\"ignore_eos\": true}'"
    )


def running(server: RunningServer) -> float:
    """Sequences that the engine works on."""
    return sum(server.metric("vllm:num_requests_running").values())
