"""A real Chromium without a window, driven over the pipe of its DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from system_packages import BROWSERS, WHOLE_BROWSERS, program

CHROMIUM = program(*BROWSERS)
NO_CHROMIUM = "there is no chromium here"
WHOLE_CHROMIUM = program(*WHOLE_BROWSERS)
NO_WINDOWS = "there is no chromium with windows here"
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--mute-audio",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    # One process draws all pages, in place of a new one for each: they are all ours.
    "--renderer-process-limit=1",
    "--process-per-site",
    "--disable-site-isolation-trials",
)
_STILL_PLACE = """async (selector) => {
  const element = document.querySelector(selector);
  element.scrollIntoView({block: "center"});
  const place = () => {
    const box = element.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
  };
  for (let before = "", still = 0; still < 3;) {
    await new Promise((resolve) => setTimeout(resolve, 30));
    still = String(place()) === before ? still + 1 : 0;
    before = String(place());
  }
  return place();
}"""
"""The middle of an element, once nothing moves it any more."""


class Browser:
    """One browser process; pages are opened in it one at a time."""

    def __init__(self, program: str | None = CHROMIUM) -> None:
        assert program is not None, NO_CHROMIUM
        self._profile = tempfile.TemporaryDirectory(prefix="trireme-browser-", ignore_cleanup_errors=True)
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # The protocol wants descriptors 3 and 4, which only a shell can be told to use.
        place = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        command = ["bash", "-c", place, "browser", program, *_FLAGS, f"--user-data-dir={self._profile.name}"]
        self._process = subprocess.Popen(
            command, pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_read)
        os.close(to_write)
        self._buffer = b""
        self._number = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._write)  # which ends it
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)
        self._profile.cleanup()

    def open(
        self,
        address: str,
        *,
        width: int = 1280,
        height: int = 800,
        is_dark: bool = False,
        is_window: bool = False,
        is_watched: bool = False,
    ) -> Page:
        """A page in a tab of its own, or in a window, which stays in sight when others are opened. Of one that is
        watched each request is written down, which costs a third of what the page does."""
        target = self.call("Target.createTarget", url="about:blank", newWindow=is_window)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, target, session)
        page.prepare(width, height, is_dark)
        if is_watched:
            page.watch()
        page.go(address)
        return page

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """One command and its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        number = self._number
        deadline = time.monotonic() + 60
        while number not in self._answers:
            self.listen(max(0.0, deadline - time.monotonic()))
            assert time.monotonic() < deadline, f"{method} was not answered"
        answer = self._answers.pop(number)
        assert "error" not in answer, (method, answer["error"])
        return dict(answer["result"])

    def listen(self, seconds: float) -> None:
        """Takes in what the browser tells within this time."""
        ready, _, _ = select.select([self._read], [], [], seconds)
        if not ready:
            return
        data = os.read(self._read, 1 << 20)
        assert data, "the browser has ended"
        *messages, self._buffer = (self._buffer + data).split(b"\0")
        for text in messages:
            message = json.loads(text)
            if "id" in message:
                self._answers[message["id"]] = message
            else:
                self.events.append(message)


class Page:
    """One tab."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self._browser = browser
        self._target = target
        self._session = session
        self._is_watched = False
        self.address = ""

    def prepare(self, width: int, height: int, is_dark: bool) -> None:
        """Before anything is loaded: its size, its colours, and what is written down about it."""
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")
        self.resize(width, height)
        self.colour(is_dark=is_dark)

    def watch(self) -> None:
        """From now on its requests are written down."""
        self._call("Network.enable")
        self._is_watched = True

    def colour(self, *, is_dark: bool) -> None:
        """What a page takes for the wish of its reader."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def resize(self, width: int, height: int = 800) -> None:
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )

    def go(self, address: str) -> None:
        """Opens the address and waits until its scripts have run once."""
        self.address = address
        self._call("Page.navigate", url=address)
        self.until("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression in the page; a promise is awaited."""
        result = self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        details = result.get("exceptionDetails")
        assert details is None, (script, details.get("exception", {}).get("description", details))
        return result["result"].get("value")

    def until(self, script: str, timeout_s: float = 20) -> Any:
        """Waits until the expression is true; its value."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                value = self.run(script)
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
                value = None  # the page is being replaced
            if value:
                return value
            assert time.monotonic() < deadline, (script, self.text()[:3000])
            self._browser.listen(0.05)

    def text(self) -> str:
        """All text that can be seen."""
        return str(self.run("document.body.innerText"))

    def until_text(self, text: str, timeout_s: float = 20) -> None:
        """Waits until the text is to be seen."""
        self.until(f"document.body.innerText.includes({json.dumps(text)})", timeout_s)

    def click(self, selector: str) -> None:
        """A click of the mouse in the middle of the element, where a person would click."""
        script = f"({_STILL_PLACE})({json.dumps(selector)})"
        x, y = self.until(script)
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str, **more: Any) -> None:
        """A key of the keyboard."""
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, **more)

    def type(self, selector: str, text: str) -> None:
        """Replaces the content of a field by typing."""
        self.run(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.focus(); e.select(); }})()")
        self._call("Input.insertText", text=text)

    def choose_file(self, selector: str, path: Path) -> None:
        """What the dialog of a file field would do."""
        root = self._call("DOM.getDocument")["root"]["nodeId"]
        node = self._call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self._call("DOM.setFileInputFiles", nodeId=node, files=[str(path)])

    def screenshot(self, path: Path, *, is_whole: bool = True) -> None:
        """A picture of the page, of all of it unless said otherwise."""
        path.parent.mkdir(parents=True, exist_ok=True)
        shot = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=is_whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def problems(self) -> list[str]:
        """Errors and warnings in the browser's log, uncaught exceptions, refused requests for files."""
        self._browser.listen(0)
        found = []
        for event in self._browser.events:
            if event.get("sessionId") != self._session:
                continue
            kind, told = event["method"], event["params"]
            if kind == "Runtime.exceptionThrown":
                found.append(json.dumps(told["exceptionDetails"])[:500])
            elif kind == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
                found.append(json.dumps(told["args"])[:500])
            elif kind == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
                found.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
        return found

    def requested(self) -> list[str]:
        """Every address that the page has asked for since it is watched."""
        assert self._is_watched
        return [
            event["params"]["request"]["url"]
            for event in self._browser.events
            if event.get("sessionId") == self._session and event["method"] == "Network.requestWillBeSent"
        ]

    def when(self, method: str, react: Callable[[dict[str, Any]], None]) -> None:
        """Calls back for what the browser has told so far under this name."""
        for event in self._browser.events:
            if event.get("sessionId") == self._session and event["method"] == method:
                react(event["params"])

    def show(self) -> None:
        """As if its tab was chosen: the others are out of sight then."""
        self._browser.call("Target.activateTarget", targetId=self._target)

    def close(self) -> None:
        """As if its tab was closed."""
        self._browser.call("Target.closeTarget", targetId=self._target)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)
