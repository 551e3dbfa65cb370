"""Who sees the console: nobody, this machine, everybody, or those who have a key."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from browser import Browser, Page
from console_address import console_of
from console_models import ADD_ONE, EXAMPLES, config
from running_server import RunningServer, port_flags, three_ports, write_model
from try_form import run_in, send, set_field, snippet, until_answered

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


def status(address: str, port: int, path: str, host: str = "", key: str = "", site: str = "") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, port, timeout=10)
    headers = {"Host": host, "Authorization": f"Bearer {key}" if key else "", "Sec-Fetch-Site": site}
    connection.request("GET", path, headers={name: value for name, value in headers.items() if value})
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
            assert status("127.0.0.1", port, path, site="cross-site")[0] == (403 if "/api/" in path else 200)
            assert status("127.0.0.1", port, path, site="same-origin")[0] == 200
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


HURRY = """(() => {
  window.lateCount = 0;
  const {setTimeout} = window;
  window.setTimeout = (act, ms, ...more) =>
    setTimeout(ms === 6000 ? () => { window.lateCount += 1; act(); } : act, ms === 6000 ? 100 : ms, ...more);
})()"""
"""What the page takes for silence is over at once."""


def test_key_may_be_typed_as_slowly_as_one_likes(folder: Path, browser: Browser) -> None:
    key = new_key(folder, "slow", "--groups", "all")
    with OpenServer(folder, "--api-keys=keys.toml") as server:
        server.wait_until_listening()
        page = browser.open("about:blank")
        page._call("Page.addScriptToEvaluateOnNewDocument", source=HURRY)
        page.go(console_of(server))
        page.until_text("This server asks for an API key")
        page.until("window.lateCount > 2")
        assert "does not answer" not in page.text()
        page.type("#key", key)
        page.click("dialog button.main")
        page.until_text("numbers")
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
        assert "trireme keys new FILE NAME --groups statistics,health,inference,metadata (" in page.run(
            "document.querySelector('.notice.bad').innerText"
        )
        assert "holds no models" not in page.text()
        assert "0 of 0" not in page.text()
        page.go(console_of(server, "api"))
        page.until_text("/v2/models/{model}/infer")
        page.run(f"sessionStorage.setItem('trireme-key', {watcher!r}); location.reload()")
        page.until_text("is not allowed to use 'metadata'")
        page.go(console_of(server, "server"))
        command = "A key that is: trireme keys new FILE NAME --groups statistics,%s ("
        page.until_text(f"is not allowed to use 'logging' (its groups: statistics). {command % 'logging'}")
        for part in ("Versions", "Flags in force", "Devices", "Limits"):
            assert part in page.text()
        for tab, group in (("config", "model-config"), ("log", "logging")):
            page.go(console_of(server, f"model/numbers/1/{tab}"))
            page.until_text(f"is not allowed to use '{group}'")
            assert "Statistics" in page.run("document.querySelector('nav.tabs').innerText")
        page.go(console_of(server, "model/numbers/1/try"))
        page.until("!!document.querySelector('form.card')")
        send(page)
        until_answered(page, command % "inference")
        page.close()


def test_chat_says_how_to_come_by_a_key_that_may_ask(tmp_path: Path, browser: Browser) -> None:
    shutil.copytree(EXAMPLES / "scribe", tmp_path / "model_repository" / "scribe")
    watcher = new_key(tmp_path, "watcher", "--groups", "statistics")
    with RunningServer(tmp_path, "--api-keys=keys.toml") as server:
        server.wait_until_listening()
        page = browser.open(console_of(server, "model/scribe/1/chat"))
        give_key(page, watcher)
        page.until("!!document.querySelector('[aria-label=Message]')")
        page.type("[aria-label=Message]", "Hello")
        page.press("Enter", code="Enter", windowsVirtualKeyCode=13)
        page.until_text("trireme keys new FILE NAME --groups statistics,inference (")
        page.close()


def give_key(page: Page, key: str) -> None:
    page.until_text("This server asks for an API key")
    page.type("#key", key)
    page.click("dialog button.main")
    page.until("!document.querySelector('dialog')")


def test_key_can_be_changed_while_the_page_is_live(folder: Path, browser: Browser) -> None:
    watcher = new_key(folder, "watcher", "--groups", "statistics")
    everything = new_key(folder, "all", "--groups", "all")
    kept = "sessionStorage.getItem('trireme-key')"
    with RunningServer(folder, "--api-keys=keys.toml") as server:
        server.wait_until_listening()
        page = browser.open(console_of(server, "server"), is_watched=True)
        give_key(page, watcher)
        page.until_text("is not allowed to use 'logging'")
        page.until_text("Live")
        page.click("#other-key")
        page.until("!!document.querySelector('dialog')")
        assert "not accepted" not in page.text()
        page.press("Escape", code="Escape", windowsVirtualKeyCode=27)
        page.until("!document.querySelector('dialog')")
        assert page.run(kept) == watcher
        page.click("#other-key")
        give_key(page, everything)
        page.until_text("Live")
        page.until("!document.body.innerText.includes('is not allowed')")
        page.until("!!document.querySelector('.log div')")
        streams = [address for address in page.requested() if address.endswith("/console/api/events")]
        assert len(streams) > 1, "the stream goes on with the key that was put away"
        page.close()


@pytest.mark.parametrize("way", ["curl", "Python, tritonclient", "JavaScript"])
def test_programs_take_the_key_from_the_environment(
    folder: Path, browser: Browser, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = new_key(folder, "all", "--groups", "all")
    with RunningServer(folder, "--api-keys=keys.toml") as server:
        server.wait_until_listening()
        page = browser.open(console_of(server, "model/numbers/1/try"))
        give_key(page, everything)
        page.until("!!document.querySelector('form.card')")
        set_field(page, "[aria-label='IN value 1']", "41")
        send(page)
        until_answered(page, "42")
        monkeypatch.setenv("KEY", everything)
        text = snippet(page, way)
        assert everything not in text
        assert "42" in run_in(folder, text, way)
        page.close()


def test_description_of_the_api_is_saved_where_a_key_is_asked_for(folder: Path, browser: Browser) -> None:
    everything = new_key(folder, "all", "--groups", "all")
    with RunningServer(folder, "--api-keys=keys.toml") as server:
        server.wait_until_listening()
        page = browser.open(console_of(server, "api"))
        give_key(page, everything)
        page.until_text("/v2/models/{model}/infer")
        browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
        page.run("[...document.querySelectorAll('button')].find((one) => one.textContent === 'openapi.json').click()")
        server.until((folder / "openapi.json").is_file)
        server.until(lambda: (folder / "openapi.json").read_text().endswith("}"))
        assert "/v2/models/{model}/infer" in json.loads((folder / "openapi.json").read_text())["paths"]
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
