"""The form of "Try it" as tests use it: filling it in, its answer, its programs, and the addresses that it holds."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import wave
from pathlib import Path

import pytest
from browser import Page
from console_address import console_of
from running_server import RunningServer

COUNT_ADDRESSES = """(() => {
  const held = window.heldAddresses = new Set();
  held.made = 0;
  const {createObjectURL, revokeObjectURL} = URL;
  URL.createObjectURL = (blob) => {
    const address = createObjectURL.call(URL, blob);
    held.add(address);
    held.made += 1;
    return address;
  };
  URL.revokeObjectURL = (address) => { held.delete(address); revokeObjectURL.call(URL, address); };
})()"""
HELD = "window.heldAddresses.size"
MADE = "window.heldAddresses.made"
RUN_BLOCK = Path(__file__).parents[2] / "docs" / "run_block.py"


def open_form(page: Page, server: RunningServer, model: str) -> None:
    page.go(console_of(server, f"model/{model}/1/try"))
    page.until("!!document.querySelector('form.card')")


def send(page: Page) -> None:
    page.click("form.card button.main")


def answer(page: Page) -> str:
    return str(page.run("document.querySelector('[aria-label=Answer]').innerText"))


def until_answered(page: Page, text: str) -> None:
    page.until(f"document.querySelector('[aria-label=Answer]').innerText.includes({json.dumps(text)})")


def set_field(page: Page, selector: str, value: str) -> None:
    page.run(
        f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.value = {json.dumps(value)};"
        " e.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )


def beep(path: Path) -> Path:
    """A tenth of a second of silence."""
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(bytes(3200))
    return path


def snippet(page: Page, way: str) -> str:
    set_field(page, "[aria-label='The request as']", way)
    return str(page.run("document.querySelector('.snippets pre').textContent"))


def run_snippet(page: Page, folder: Path, way: str) -> str:
    """What the snippet prints: in a shell, in Python, or in this browser."""
    text = snippet(page, way)
    if way != "JavaScript":
        return run_in(folder, text, way)
    told = text.replace("console.log(", "said.push(")
    return str(page.run(f"(async () => {{ const said = []; {told} return JSON.stringify(said); }})()"))


def run_in(folder: Path, text: str, way: str) -> str:
    """What the program prints where its files are."""
    if way == "curl":
        return output_of(["bash", "-c", text], folder)
    if way != "JavaScript":
        return output_of(python(folder, text), folder)
    node = shutil.which("node")
    if node is None:
        pytest.skip("this machine has no Node.js")
    return output_of([node, "--input-type=module", "-e", text], folder)


def python(folder: Path, text: str) -> list[str]:
    """The command that runs the program, which is forked as those on pages of the documentation are."""
    (folder / "snippet.py").write_text(text, encoding="utf-8")
    return [sys.executable, str(RUN_BLOCK), "snippet.py", "snippet.py"]


def output_of(command: list[str], folder: Path | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout
