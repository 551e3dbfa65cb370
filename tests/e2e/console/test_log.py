"""The log as it is read: its newest line, and those that come behind it."""

from __future__ import annotations

import pytest
from browser import Page
from running_server import RunningServer

LIST = "document.querySelector('[role=log]')"
LOADS = f"[...{LIST}.children].filter((line) => line.textContent.includes(\": load model 'longs': done\")).length"
REST = f"({LIST}.scrollHeight - {LIST}.scrollTop - {LIST}.clientHeight)"
LOW_LIST = """(() => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(".log { max-height: 40px !important; }");
  document.adoptedStyleSheets = [sheet];
})()"""


def write_lines(page: Page, server: RunningServer) -> None:
    """Has the server log something about a model, until the page shows it. Lines of the copy that went may still come
    behind that of the load."""
    before = page.run(LOADS)
    assert server.ask("POST", "/v2/repository/models/longs/unload", {})[0] == 200
    assert server.ask("POST", "/v2/repository/models/longs/load", {})[0] == 200
    server.until_ready("longs")
    page.until(f"{LOADS} > {before}")


@pytest.mark.parametrize("view", ["server", "model/longs/1/log"])
def test_newest_line_is_in_sight_and_followed_until_somebody_reads_further_up(
    page: Page, server: RunningServer, view: str
) -> None:
    page.run(LOW_LIST)  # a few lines are more than it shows
    page.run(f"location.hash = '#/{view}'")
    page.until(f"!!{LIST} && {LIST}.clientHeight > 0 && {LIST}.children.length > 0")
    write_lines(page, server)
    page.run("location.hash = '#/api'")
    page.until(f"!{LIST}")
    page.run(f"location.hash = '#/{view}'")
    page.until(f"!!{LIST} && {LIST}.clientHeight > 0 && {LIST}.scrollTop > 0 && {REST} < 2")
    write_lines(page, server)
    page.until(f"{REST} < 2")
    page.run(f"{LIST}.scrollTop = 0")
    write_lines(page, server)
    assert page.run(f"{LIST}.scrollTop") == 0


def test_next_lines_are_asked_for_when_the_last_ones_have_come(page: Page, server: RunningServer) -> None:
    began = page.run(
        "import('/console/static/parts/dom.js').then(async ({every}) => {"
        "  let began = 0;"
        "  const stop = every(20, () => { began += 1; return new Promise(() => {}); });"
        "  await new Promise((done) => setTimeout(done, 500));"
        "  stop();"
        "  return began;"
        "})"
    )
    assert began == 1


def test_first_hour_of_a_day_is_called_zero(page: Page, server: RunningServer) -> None:
    script = "import('/console/static/parts/dom.js').then(({clock}) => [%s].map((at) => clock(at / 1000%s)))"
    times = "new Date(2026, 0, 1, 0, 4, 5), new Date(2026, 0, 1, 23, 4, 5)"
    assert page.run(script % (times, "")) == ["00:04:05", "23:04:05"]
    assert page.run(script % (times, ", 'short'")) == ["00:04", "23:04"]


def test_what_is_read_is_not_waited_for_without_end(page: Page, server: RunningServer) -> None:
    page.run("(() => { const {timeout} = AbortSignal; AbortSignal.timeout = () => timeout.call(AbortSignal, 100); })()")
    endless = (
        "import('/console/static/parts/api.js').then(({get}) => get('/console/api/events')).catch(({name}) => name)"
    )
    assert page.run(endless) in ("TimeoutError", "AbortError")
