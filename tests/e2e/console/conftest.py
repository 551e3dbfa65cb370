"""One server with a model of each kind, and one browser, for all tests of this folder."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from browser import CHROMIUM, NO_CHROMIUM, Browser, Page
from console_address import console_of
from console_models import EXAMPLES, write_all
from kept_page import NO_VIEW, KeptPage
from running_server import RunningServer


@pytest.fixture(scope="session")
def console_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the models of the server are."""
    return tmp_path_factory.mktemp("console")


@pytest.fixture(scope="session")
def server(console_folder: Path) -> Iterator[RunningServer]:
    """A server whose models may be loaded and unloaded."""
    folder = console_folder
    write_all(folder)
    shutil.copytree(EXAMPLES / "scribe", folder / "model_repository" / "scribe")
    flags = ("--model-control-mode=explicit", "--load-model=*", "--allow-recording=true")
    with RunningServer(folder, *flags) as running:
        running.wait_until_listening()
        running.until_ready("scribe")
        yield running


@pytest.fixture(scope="session")
def browser(server: RunningServer) -> Iterator[Browser]:
    """The one browser. The server's own page in its first tab keeps the process that draws all of them, which would
    end with the only page of a site and be started anew for the next one."""
    if CHROMIUM is None:
        pytest.skip(NO_CHROMIUM)
    with Browser() as running:
        running.open(f"{console_of(server)}v2")
        yield running


@pytest.fixture(scope="module")
def first_view() -> str:
    """What a test finds in its page; `NO_VIEW` for tests that all go elsewhere first, since the table of models costs
    more than what most of them look at."""
    return ""


@pytest.fixture(scope="module")
def kept_page(browser: Browser, server: RunningServer) -> Iterator[KeptPage]:
    """The page of all tests of a file that leave it as they have found it."""
    kept = KeptPage(browser, server)
    yield kept
    kept.close()


@pytest.fixture
def page(kept_page: KeptPage, server: RunningServer, first_view: str) -> Iterator[Page]:
    """A page for each test, which ends with nothing in the browser's log."""
    taken = kept_page.take()
    if first_view != NO_VIEW:
        taken.go(f"{console_of(server)}#/{first_view}")
    yield taken
    kept_page.give_back()


@pytest.fixture
def modules(kept_page: KeptPage) -> Iterator[Page]:
    """A page without a view, for tests that ask its modules alone."""
    yield kept_page.take()
    kept_page.give_back()


@pytest.fixture
def watched_page(browser: Browser, server: RunningServer) -> Iterator[Page]:
    """A page of its own, whose requests are written down."""
    browser.events.clear()
    opened = browser.open(console_of(server), is_watched=True)
    yield opened
    problems = opened.problems()
    opened.close()
    assert problems == []
