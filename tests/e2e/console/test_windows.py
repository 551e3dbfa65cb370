"""Windows of one browser that are in sight at once: one of them has the event stream, and tells the others."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from browser import Browser, Page
from console_address import console_of
from console_models import ADD_ONE, config
from returning_server import ServerAt
from running_server import RunningServer, three_ports, write_model

COUNT = 8
"""More than the six connections that a browser opens to one server."""
LIVE = "import('/console/static/parts/live.js').then(({live}) => %s)"
IS_LIVE = LIVE % "live.isConnected && Date.now() - live.takenAt < 3000"


@contextmanager
def windows(browser: Browser, address: str, count: int) -> Iterator[list[Page]]:
    opened = [browser.open(address, width=500, height=400, is_window=True) for _ in range(count)]
    yield opened
    for page in opened:
        page.close()


def watchers(server: RunningServer) -> int:
    return int(json.loads(server.ask("GET", "/console/api/server")[2])["watchers"])


def requests_shown(page: Page, count: int) -> None:
    shown = "import('/console/static/parts/live.js').then(({rows}) => rows.get('numbers\\u00001')?.total)"
    page.until(f"{shown}.then((total) => total === {count})")


def write(folder: Path) -> None:
    write_model(folder, "numbers", ADD_ONE, config("IN INT32 -1", "OUT INT32 -1", "max_batch_size: 8"))


def test_many_windows_are_live_by_one_stream_and_one_follows_the_other(browser: Browser, tmp_path: Path) -> None:
    write(tmp_path)
    browser.events.clear()
    with RunningServer(tmp_path) as server:
        server.wait_until_ready()
        with windows(browser, console_of(server), COUNT) as opened:
            for page in opened:
                page.until("document.visibilityState === 'visible' && !!document.querySelector('tbody .name')")
            server.until(lambda: watchers(server) == 1)
            server.infer("numbers", 1)
            for page in opened:
                requests_shown(page, 1)
                assert page.run(IS_LIVE)
            for gone in range(2):  # the one that has the stream goes, and the one behind it
                opened.pop(0).close()
                server.infer("numbers", 1)
                for page in opened:
                    requests_shown(page, 2 + gone)
                server.until(lambda: watchers(server) == 1)
            assert [page.problems() for page in opened] == [[]] * len(opened)


def test_windows_say_that_the_server_is_gone_and_find_it_again(browser: Browser, tmp_path: Path) -> None:
    write(tmp_path)
    ports = three_ports()
    with ServerAt(tmp_path, ports) as server:
        server.wait_until_ready()
        address = console_of(server)
    with ServerAt(tmp_path, ports) as server:
        server.wait_until_ready()
        opened = [browser.open(address, width=500, height=400, is_window=True) for _ in range(3)]
        for page in opened:
            page.until(IS_LIVE)
    for page in opened:
        page.until(LIVE % "!live.isConnected && live.problem")
    with ServerAt(tmp_path, ports) as server:
        server.wait_until_ready()
        for page in opened:
            page.until(IS_LIVE, 60)
        server.until(lambda: watchers(server) == 1)
        for page in opened:
            page.close()


def test_window_with_another_key_has_a_stream_of_its_own(browser: Browser, tmp_path: Path) -> None:
    write(tmp_path)
    trireme = str(Path(sys.executable).with_name("trireme"))
    command = [trireme, "keys", "new", str(tmp_path / "keys.toml")]
    made = [
        subprocess.run([*command, name, "--groups", "all"], capture_output=True, text=True, check=True).stdout.strip()
        for name in ("one", "other")
    ]
    with RunningServer(tmp_path, "--api-keys=keys.toml") as server:
        server.wait_until_listening()
        with windows(browser, console_of(server), 4) as opened:
            for page, key in zip(opened, [*made, made[0]], strict=False):
                page.until_text("This server asks for an API key")
                page.type("#key", key)
                page.click("dialog button.main")
                page.until(IS_LIVE)
            headers = {"Authorization": f"Bearer {made[0]}"}
            connection = server.connect()

            def count() -> int:
                connection.request("GET", "/console/api/server", headers=headers)
                return int(json.loads(connection.getresponse().read())["watchers"])

            server.until(lambda: count() == 2)
            assert "This server asks for an API key" in opened[3].text()
            assert "numbers" not in opened[3].text()
