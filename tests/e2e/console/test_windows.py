"""Windows of one browser that are in sight at once: one of them has the event stream, and tells the others."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from browser import Browser, Page
from console_address import console_of
from console_models import ADD_ONE, config
from returning_server import ServerAt
from running_server import RunningServer, int_request, three_ports, write_model

TRIREME = str(Path(sys.executable).with_name("trireme"))
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


def ask(server: RunningServer, key: str, method: str, path: str, body: object = None) -> Any:
    with closing(http.client.HTTPConnection("127.0.0.1", server.ports["http"], timeout=30)) as connection:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        return json.loads(connection.getresponse().read())


def watchers(server: RunningServer, key: str = "") -> int:
    return int(ask(server, key, "GET", "/console/api/server")["watchers"])


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


def make_keys(folder: Path, **groups: str) -> list[str]:
    """A key of each name for these groups."""
    command = [TRIREME, "keys", "new", str(folder / "keys.toml")]
    return [
        subprocess.run([*command, name, "--groups", of], capture_output=True, text=True, check=True).stdout.strip()
        for name, of in groups.items()
    ]


def give_key(page: Page, key: str) -> None:
    page.until_text("This server asks for an API key")
    page.type("#key", key)
    page.click("dialog button.main")


def test_window_with_another_key_has_a_stream_of_its_own(browser: Browser, tmp_path: Path) -> None:
    write(tmp_path)
    made = make_keys(tmp_path, one="all", other="all")
    with RunningServer(tmp_path, "--api-keys=keys.toml") as server:
        server.wait_until_listening()
        with windows(browser, console_of(server), 4) as opened:
            for page, key in zip(opened, [*made, made[0]], strict=False):
                give_key(page, key)
                page.until(IS_LIVE)
            server.until(lambda: watchers(server, made[0]) == 2)
            assert "This server asks for an API key" in opened[3].text()
            assert "numbers" not in opened[3].text()


def test_windows_lose_the_stream_with_their_key_and_share_that_of_the_next_one(
    browser: Browser, tmp_path: Path
) -> None:
    write(tmp_path)
    lost, found, client = make_keys(tmp_path, lost="all", found="all", client="inference")
    with RunningServer(tmp_path, "--api-keys=keys.toml") as server:
        server.wait_until_listening()
        with windows(browser, console_of(server), 3) as opened:
            for page in opened[:2]:
                give_key(page, lost)
                page.until(IS_LIVE)
            subprocess.run([TRIREME, "keys", "remove", str(tmp_path / "keys.toml"), "lost"], check=True)
            for page in opened[:2]:
                page.until_text("The key was not accepted.")
            server.until(lambda: watchers(server, found) == 0)
            for page, key in zip(opened, (found, client, found), strict=True):
                give_key(page, key)
            for page in opened[0], opened[2]:
                page.until(IS_LIVE)
            opened[1].until_text("is not allowed to use 'statistics'")
            server.until(lambda: watchers(server, found) == 1)
            ask(server, found, "POST", "/v2/models/numbers/infer", int_request(1))
            for page in opened[0], opened[2]:
                requests_shown(page, 1)
            assert not opened[1].run(IS_LIVE)
