"""Tabs of one window, of which one is in sight, and pages that a browser keeps behind the one that it shows: a browser
without windows has neither."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import NO_WINDOWS, WHOLE_CHROMIUM, Browser, Page
from console_address import console_of
from models_rows import cell, row_of
from running_server import RunningServer, int_request
from try_form import answer, send, set_field, until_answered


@pytest.fixture(scope="module")
def browser(server: RunningServer) -> Iterator[Browser]:
    if WHOLE_CHROMIUM is None:
        pytest.skip(NO_WINDOWS)
    with Browser(WHOLE_CHROMIUM) as running:
        running.open(f"{console_of(server)}v2")
        yield running


LIVE = "import('/console/static/parts/live.js').then(({live}) => %s)"
MANY_TABS = 8
"""More than the six connections that a browser opens to one server."""


def test_many_tabs_do_not_wait_for_each_other(browser: Browser, page: Page, server: RunningServer) -> None:
    tabs = [browser.open(console_of(server)) for _ in range(MANY_TABS - 1)]
    tabs[-1].until(f"!!{row_of('numbers')}")
    tabs[-1].go(console_of(server, "model/numbers/1/try"))
    tabs[-1].until("!!document.querySelector('form.card')")
    set_field(tabs[-1], "[aria-label='IN value 1']", "41")
    send(tabs[-1])
    until_answered(tabs[-1], "42")
    assert "42" in answer(tabs[-1])
    for tab in tabs:
        tab.close()


def test_tab_that_comes_back_into_sight_has_the_figures_of_now(
    browser: Browser, page: Page, server: RunningServer
) -> None:
    page.until(f"!!{row_of('again')}")
    total = int(cell(page, "again", "Requests"))
    other = browser.open("about:blank")
    page.until(LIVE % "document.hidden && !live.isConnected")
    assert server.ask("POST", "/v2/models/again/infer", int_request(1, 2))[0] == 200
    assert int(cell(page, "again", "Requests")) == total
    other.close()
    page.show()
    page.until(f"{row_of('again')}.querySelector('[data-label=Requests]').textContent === '{total + 1}'")


def test_page_that_the_browser_has_kept_is_live_again(page: Page, server: RunningServer) -> None:
    page.until(f"!!{row_of('again')}")
    page.run("window.isKept = true")
    page.go("about:blank")
    page.run("history.back()")
    page.until("document.querySelector('#vitals')?.innerText.includes('Live')")
    assert page.run("window.isKept"), "the browser has not kept the page"
    taken = page.run(LIVE % "live.takenAt")
    page.until(LIVE % f"live.takenAt > {taken}")
