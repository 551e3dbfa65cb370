"""Who sees the console: nobody, this machine, everybody, or those who have a key."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from browser import Browser
from console_address import console_of
from console_models import ADD_ONE, config
from running_server import RunningServer, port_flags, three_ports, write_model

PATHS = (
    "/",
    "/console",
    "/console/static/app.js",
    "/console/static/parts/dom.js",
    "/console/api/events",
    "/console/api/server",
    "/console/api/log",
)
NUMBERS = config("IN INT32 -1", "OUT INT32 -1", "max_batch_size: 8")


def elsewhere() -> str:
    """An address of this machine that is not the loopback's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but the loopback's")
        return str(probe.getsockname()[0])


def status(address: str, port: int, path: str, host: str = "", key: str = "") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, port, timeout=10)
    headers = {"Host": host} if host else {}
    connection.request("GET", path, headers={**headers, "Authorization": f"Bearer {key}"} if key else headers)
    answer = connection.getresponse()
    body = b"" if path.endswith("events") and answer.status == 200 else answer.read()
    connection.close()
    return answer.status, body


class OpenServer(RunningServer):
    """One that listens on every address of the machine."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.ports = three_ports()
        command = [str(Path(sys.executable).with_name("tritonserver")), "--model-repository=model_repository", *flags]
        self._start(folder, [*command, *port_flags(self.ports), "--http-address=0.0.0.0"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_model(tmp_path, "numbers", ADD_ONE, NUMBERS)
    return tmp_path


def test_switched_off_it_is_not_there(folder: Path) -> None:
    with RunningServer(folder, "--console=off") as server:
        server.wait_until_listening()
        for path in PATHS:
            assert status("127.0.0.1", server.ports["http"], path)[0] == 404
        assert server.status("/openapi.json") == 200


@pytest.mark.parametrize("flags", [(), ("--frontend-processes=2",)])
def test_without_keys_it_is_for_this_machine_alone(folder: Path, flags: tuple[str, ...]) -> None:
    with OpenServer(folder, *flags) as server:
        server.wait_until_listening()
        port = server.ports["http"]
        assert status("127.0.0.1", port, "/")[0] == 200
        for path in PATHS:
            refused, body = status(elsewhere(), port, path)
            assert refused == 403
            assert b"--console=on" in body
            assert status("127.0.0.1", port, path, "rebound.example.com")[0] == 403
        assert status(elsewhere(), port, "/v2/health/ready")[0] == 200


def test_it_can_be_shown_to_everybody(folder: Path) -> None:
    with OpenServer(folder, "--console=on") as server:
        server.wait_until_listening()
        for path in PATHS:
            assert status(elsewhere(), server.ports["http"], path)[0] == 200


def new_key(folder: Path, *words: str) -> str:
    command = [str(Path(sys.executable).with_name("trireme")), "keys", "new", str(folder / "keys.toml"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_what_was_in_requests_is_for_those_who_may_record(folder: Path) -> None:
    watcher, recorder = (new_key(folder, name, "--groups", name) for name in ("statistics", "recording"))
    with RunningServer(folder, "--api-keys=keys.toml", "--allow-recording=true") as server:
        server.wait_until_listening()
        port = server.ports["http"]
        assert status("127.0.0.1", port, "/console/api/requests", key=watcher)[0] == 200
        assert status("127.0.0.1", port, "/console/api/contents/1", key=watcher)[0] == 403
        assert status("127.0.0.1", port, "/console/api/contents/1", key=recorder)[0] == 404
        assert status("127.0.0.1", port, "/console/api/contents/1")[0] == 401


def test_with_keys_the_page_asks_for_one(folder: Path, browser: Browser) -> None:
    made = [new_key(folder, "all", "--groups", "all"), new_key(folder, "client")]
    with OpenServer(folder, "--api-keys=keys.toml") as server:
        server.wait_until_listening()
        for path in PATHS:
            is_data = "/api/" in path
            assert status(elsewhere(), server.ports["http"], path)[0] == (401 if is_data else 200)
        browser.events.clear()
        page = browser.open(console_of(server))
        page.until_text("This server asks for an API key")
        assert "numbers" not in page.text()
        page.type("#key", "wrong")
        page.click("dialog button.main")
        page.until_text("The key was not accepted.")
        page.type("#key", made[1])
        page.click("dialog button.main")
        page.until_text("is not allowed to use 'statistics'")
        page.until("!document.querySelector('#other-key').hidden")
        page.click("#other-key")
        page.until_text("This server asks for an API key")
        page.type("#key", made[0])
        page.click("dialog button.main")
        page.until_text("numbers")
        page.go(console_of(server, "model/numbers/1/try"))
        page.until("!!document.querySelector('form.card')")
        page.click("form.card button.main")
        page.until_text("Where the time went")
        assert made[0] not in page.text()
        page.close()


def test_what_a_key_does_not_open_leaves_the_rest_of_the_page(folder: Path, browser: Browser) -> None:
    client = new_key(folder, "client", "--groups", "health,metadata,inference")
    watcher = new_key(folder, "watcher", "--groups", "statistics")
    with RunningServer(folder, "--api-keys=keys.toml") as server:
        server.wait_until_listening()
        page = browser.open(console_of(server))
        page.until_text("This server asks for an API key")
        page.type("#key", client)
        page.click("dialog button.main")
        page.until("document.querySelector('main').innerText.includes(\"is not allowed to use 'statistics'\")")
        assert "trireme keys new FILE NAME --groups statistics (" in page.run(
            "document.querySelector('.notice.bad').innerText"
        )
        assert "holds no models" not in page.text()
        assert "0 of 0" not in page.text()
        page.go(console_of(server, "api"))
        page.until_text("/v2/models/{model}/infer")
        page.run(f"sessionStorage.setItem('trireme-key', {watcher!r}); location.reload()")
        page.until_text("is not allowed to use 'metadata'")
        page.go(console_of(server, "server"))
        page.until_text(
            "is not allowed to use 'logging'. A key that is: trireme keys new FILE NAME --groups statistics,logging"
        )
        for part in ("Versions", "Flags in force", "Devices", "Limits"):
            assert part in page.text()
        for tab, group in (("config", "model-config"), ("log", "logging")):
            page.go(console_of(server, f"model/numbers/1/{tab}"))
            page.until_text(f"is not allowed to use '{group}'")
            assert "Statistics" in page.run("document.querySelector('nav.tabs').innerText")
        page.close()


def test_figures_of_a_server_that_is_gone_look_old_and_say_their_time(folder: Path, browser: Browser) -> None:
    colours = (
        "[...document.querySelectorAll('.lines td[data-label=Requests], .fact dd, #vitals b')]"
        ".map((one) => getComputedStyle(one).color)"
    )
    with RunningServer(folder) as server:
        server.wait_until_listening()
        page = browser.open(console_of(server))
        page.until("!!document.querySelector('.lines tbody td')")
        page.until_text("Live")
        assert "Figures as of" not in page.text()
        fresh = page.run(colours)
        server.process.kill()
        page.until("/Figures as of \\d\\d:\\d\\d:\\d\\d\\./.test(document.querySelector('#vitals').innerText)")
        quiet = page.run("getComputedStyle(document.querySelector('.quiet')).color")
        old = page.run(colours)
        assert set(old) == {quiet}
        assert fresh
        assert quiet not in fresh
        page.close()


def test_open_page_does_not_hold_up_the_end_of_the_server(folder: Path, browser: Browser) -> None:
    with RunningServer(folder) as server:
        server.wait_until_listening()
        page = browser.open(console_of(server))
        page.until_text("Live")
        assert server.interrupt() == 0
        page.until("!document.querySelector('#vitals').innerText.includes('Live')")
        page.close()
    assert "Exit timeout expired" not in server.log
