"""The page that the tests of a file go through, from view to view, as a reader does.

To open one costs five times the processor time. It is kept as long as each test leaves it as it has found it: one that
puts something in the place of `fetch`, or leaves a question open, is the last to have it.
"""

from __future__ import annotations

from browser import Browser, Page
from console_address import console_of
from running_server import RunningServer

NO_VIEW = "none"
"""Where nothing is shown, as between two tests."""
_IS_LEFT = "document.querySelector('main h1')?.textContent === 'There is no such page'"
_STATE = """JSON.stringify([
  Object.keys(window),
  [fetch, setTimeout, URL.createObjectURL, URL.revokeObjectURL, AbortSignal.timeout].map(String),
  [document.adoptedStyleSheets.length, sessionStorage.length, innerWidth],
  [...document.body.children].filter((one) => !one.matches("header")).map((one) => one.outerHTML),
])"""


class KeptPage:
    """Opened for the first test that wants it, and again for the one after a test that has changed it."""

    def __init__(self, browser: Browser, server: RunningServer) -> None:
        self._browser = browser
        self._server = server
        self._page: Page | None = None
        self._state = ""

    def take(self) -> Page:
        """The page, without a view, and with nothing in the browser's log."""
        self._browser.events.clear()
        if self._page is None:
            self._page = self._browser.open(console_of(self._server, NO_VIEW))
            self._page.until(_IS_LEFT)
            self._state = self._page.run(_STATE)
        return self._page

    def give_back(self) -> None:
        """Ends its view; what the browser has in its log by then is a failure."""
        page = self._page
        assert page is not None
        try:
            page.go(console_of(self._server, NO_VIEW))
            page.until(_IS_LEFT)
            is_as_before = page.run(_STATE) == self._state
        except AssertionError:
            is_as_before = False
        problems = page.problems()
        if not is_as_before:
            self.close()
        assert problems == []

    def close(self) -> None:
        if self._page is not None:
            self._page.close()
            self._page = None
