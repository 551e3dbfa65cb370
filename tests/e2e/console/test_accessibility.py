"""The page for those who do not see it, have no mouse, a small screen, or prefer the dark."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, Page
from console_address import console_of
from kept_page import NO_VIEW
from running_server import RunningServer

AXE = "axe-core@4.10.2"
VIEWS = {
    "models": ("", "detector"),  # one of the first, since a phone has only the lines near to what is seen
    "model": ("model/numbers/1", "Mean latency by phase"),
    "ensemble": ("model/pipeline/1", "Steps"),
    "configuration": ("model/numbers/1/config", "max_batch_size"),
    "statistics": ("model/numbers/1/statistics", "executions"),
    "log": ("model/numbers/1/log", "successfully loaded"),
    "try": ("model/numbers/1/try", "Send"),
    "chat": ("model/scribe/1/chat", "Parameters"),
    "requests": ("requests", "Slowest"),
    "server": ("server", "Flags in force"),
    "api": ("api", "/v2/models/{model}/infer"),
}


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core, which is not part of this repository: a test-only tool under MPL 2.0."""
    folder = tmp_path_factory.mktemp("axe")
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("axe-core comes from npm, which is not here")
    try:
        subprocess.run([npm, "pack", AXE, "--silent"], cwd=folder, check=True, capture_output=True, timeout=90)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        pytest.skip("axe-core cannot be had from npm's registry here")
    (package,) = folder.glob("*.tgz")
    with tarfile.open(fileobj=io.BytesIO(package.read_bytes())) as archive:
        script = archive.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


@pytest.fixture(scope="module")
def axed(browser: Browser, server: RunningServer, axe: str) -> Iterator[Page]:
    """A page that axe-core has been read into."""
    page = browser.open(console_of(server, NO_VIEW))
    page.run(f"{axe}; 0")
    yield page
    page.close()


@pytest.fixture(scope="module", params=VIEWS)
def examined(axed: Page, server: RunningServer, request: pytest.FixtureRequest) -> Page:
    """One of its views, for every form that it is looked at in."""
    server.infer("numbers", 1)
    axed.colour(is_dark=False)
    axed.resize(1280)
    go(axed, server, request.param)
    return axed


@pytest.fixture(scope="module")
def narrow(browser: Browser, server: RunningServer) -> Iterator[Page]:
    """A page as wide as that of a phone."""
    page = browser.open(console_of(server, NO_VIEW), width=360)
    yield page
    page.close()


def go(page: Page, server: RunningServer, view: str) -> None:
    """From one view to another, by way of none: two of them have the same words in places."""
    address, text = VIEWS[view]
    page.go(console_of(server, NO_VIEW))
    page.until_text("There is no such page")
    page.go(f"{console_of(server)}#/{address}")
    page.until_text(text)


@pytest.mark.parametrize("form", ["light", "dark", "narrow"])
def test_no_barrier_is_found(examined: Page, form: str) -> None:
    examined.colour(is_dark=form == "dark")
    examined.resize(360 if form == "narrow" else 1280)
    examined.until("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
    found: list[dict[str, Any]] = examined.run("axe.run(document).then((result) => result.violations)")
    told = [(entry["id"], entry["nodes"][0]["html"][:200], entry["nodes"][0]["failureSummary"]) for entry in found]
    assert told == []


@pytest.mark.parametrize("view", VIEWS)
def test_nothing_sticks_out_at_360_pixels(narrow: Page, server: RunningServer, view: str) -> None:
    go(narrow, server, view)
    assert narrow.run("document.documentElement.scrollWidth") <= 360


def test_everything_can_be_done_with_the_keyboard(browser: Browser, server: RunningServer) -> None:
    page = browser.open(console_of(server))
    page.until_text("pipeline")
    page.press("/", text="/", code="Slash")
    page.until("document.activeElement.type === 'search'")
    page._call("Input.insertText", text="numb")
    page.until("document.querySelectorAll('tbody tr').length === 1")
    for _ in range(30):
        page.press("Tab", code="Tab", windowsVirtualKeyCode=9)
        if page.run("document.activeElement.className") == "name":
            break
    assert page.run("getComputedStyle(document.activeElement).outlineStyle") != "none"
    page.press("Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")
    page.until_text("Mean latency by phase")
    page.run("document.querySelector('.chart svg').focus()")
    page.until("document.querySelectorAll('.chart .line').length > 0")
    page.press("ArrowLeft", code="ArrowLeft", windowsVirtualKeyCode=37)
    page.until("!!document.querySelector('.chart .cursor')")
    page.close()


def test_files_are_asked_for_once(browser: Browser, server: RunningServer, tmp_path: Path) -> None:
    page = browser.open(console_of(server))
    page.until_text("pipeline")
    size = page.run(
        "performance.getEntriesByType('resource').filter((one) => one.name.includes('/static/'))"
        ".reduce((sum, one) => sum + one.decodedBodySize, 0)"
    )
    assert 10_000 < size < 150_000, json.dumps(size)
    page.close()
