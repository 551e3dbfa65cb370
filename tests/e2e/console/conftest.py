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
def first_address(server: RunningServer) -> str:
    """What a test finds in its page; `about:blank` for tests that all go elsewhere first, since the table of models
    costs more than what most of them look at."""
    return console_of(server)


@pytest.fixture
def page(browser: Browser, first_address: str) -> Iterator[Page]:
    """A page of its own for each test, which ends with nothing in the browser's log."""
    browser.events.clear()
    opened = browser.open(first_address)
    yield opened
    end(opened)


@pytest.fixture
def watched_page(browser: Browser, server: RunningServer) -> Iterator[Page]:
    """The same, and each of its requests is written down."""
    browser.events.clear()
    opened = browser.open(console_of(server), is_watched=True)
    yield opened
    end(opened)


@pytest.fixture(scope="module")
def idle_page(browser: Browser, server: RunningServer) -> Iterator[Page]:
    """A page for all tests of a file that ask its modules alone, and leave it as they have found it."""
    opened = browser.open(console_of(server))
    yield opened
    opened.close()


@pytest.fixture
def modules(browser: Browser, idle_page: Page) -> Iterator[Page]:
    """That page, and nothing in the browser's log behind each test."""
    browser.events.clear()
    yield idle_page
    assert idle_page.problems() == []


def end(page: Page) -> None:
    problems = page.problems()
    page.close()
    assert problems == []
