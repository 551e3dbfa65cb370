"""The pictures of docs/console.md, made of a server under load: `make screenshots` keeps them."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from browser import Browser, Page
from console_address import console_of
from console_models import ADD_ONE, CLASSES, DETECTOR, EXAMPLES, config
from meanwhile import meanwhile
from PIL import Image, ImageDraw
from running_server import RunningServer, exchange, int_request, write_ensemble, write_model

DOCS = Path(__file__).parents[3] / "docs"
PICTURES = DOCS / "pictures"
WRITE = "TRIREME_WRITE_SCREENSHOTS"
"""Seconds of traffic before the pictures are taken, which then go into docs/."""
MOST_BYTES = 200_000


@pytest.fixture(scope="module")
def harbour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with models as people have them, and some traffic."""
    folder = tmp_path_factory.mktemp("harbour")
    numbers = config("IN INT32 -1", "OUT INT32 -1", "max_batch_size: 8\ndynamic_batching {}")
    for name in ("tokenizer", "ranker", "features"):
        write_model(folder, name, ADD_ONE, numbers)
    write_ensemble(
        folder, "search", [("tokenizer", "IN", "words"), ("features", "words", "vector"), ("ranker", "vector", "OUT")]
    )
    found = "box INT32 -1 4, label STRING -1, score FP32 -1, mask UINT8 -1 -1 -1, size INT32 1"
    write_model(folder, "ships", DETECTOR.replace("<i>ship</i>", "ship"), config("image STRING 1", found))
    scores = 'output { name: "SCORES" data_type: TYPE_FP32 dims: [3] }'
    pixels = 'input { name: "PIXELS" data_type: TYPE_FP32 dims: [3, 8, 8] }'
    write_model(folder, "colours", CLASSES, f'backend: "python"\nmax_batch_size: 4\n{pixels}\n{scores}\n')
    shutil.copytree(EXAMPLES / "scribe", folder / "model_repository" / "scribe")
    with RunningServer(folder, "--model-control-mode=explicit", "--load-model=*") as server:
        server.wait_until_listening()
        server.until_ready("scribe")
        server.ask("POST", "/v2/repository/models/colours/unload")
        pauses = {"search": 0.02, "ranker": 0.05, "tokenizer": 0.01}
        with meanwhile(*[partial(ask, server, model, pause) for model, pause in pauses.items()]) as is_over:
            is_over.wait(float(os.environ.get(WRITE, "12")))
            server.infer("ranker", 666)
            server.infer("ranker", 700, request_id="query-4711")
            yield server


def ask(server: RunningServer, model: str, pause: float, is_over: threading.Event) -> None:
    connection = server.connect()
    number = 0
    while not is_over.is_set():
        number += 1
        exchange(connection, "POST", f"/v2/models/{model}/infer", int_request(number % 600))
        is_over.wait(pause * (1 + number // 400 % 3))


@pytest.fixture
def view(browser: Browser, harbour: RunningServer) -> Iterator[Page]:
    page = browser.open(console_of(harbour), width=1180, height=740)
    yield page
    page.close()


def keep(page: Page, name: str, folder: Path) -> None:
    """Takes the picture, and puts it into the documentation where that is asked for."""
    path = folder / f"console-{name}.png"
    page.screenshot(path, is_whole=False)
    with Image.open(path) as picture:
        assert len(picture.convert("RGB").getcolors(1 << 24) or []) > 50, "it is blank"
        smaller = picture.convert("RGB").quantize(96)
    smaller.save(path, optimize=True)
    assert path.stat().st_size < MOST_BYTES
    assert f"pictures/{path.name}" in (DOCS / "console.md").read_text(encoding="utf-8")
    if WRITE in os.environ:
        PICTURES.mkdir(exist_ok=True)
        shutil.copy(path, PICTURES / path.name)


def test_picture_of_the_models(view: Page, tmp_path: Path) -> None:
    view.until_text("tokenizer")
    view.until_text("colours")  # which is not loaded: it comes when the repository has been read
    view.until("Number(document.querySelector('.cards.small .fact:nth-child(2) dd').textContent) > 5")
    keep(view, "models", tmp_path)


def test_picture_of_a_model(view: Page, harbour: RunningServer, tmp_path: Path) -> None:
    view.go(console_of(harbour, "model/search/1"))
    view.until("document.querySelectorAll('.graph rect').length === 5")
    view.until("document.querySelectorAll('.chart svg path').length >= 8")
    keep(view, "model", tmp_path)


def test_picture_of_trying_a_model(view: Page, harbour: RunningServer, tmp_path: Path) -> None:
    sea = tmp_path / "sea.png"
    picture = Image.new("RGB", (60, 40), (170, 205, 225))
    draw = ImageDraw.Draw(picture)
    draw.rectangle((0, 26, 60, 40), fill=(40, 90, 130))
    draw.polygon(((12, 24), (38, 24), (34, 29), (16, 29)), fill=(120, 70, 30))
    draw.polygon(((25, 11), (25, 23), (35, 23)), fill=(250, 250, 245))
    picture.resize((480, 320), Image.Resampling.LANCZOS).resize((60, 40)).save(sea)
    view.go(console_of(harbour, "model/ships/1/try"))
    view.until("!!document.querySelector('form.card')")
    view.choose_file("input[type=file]", sea)
    view.click("form.card button.main")
    view.until_text("Where the time went")
    keep(view, "try", tmp_path)


def test_picture_of_a_chat(view: Page, harbour: RunningServer, tmp_path: Path) -> None:
    view.go(console_of(harbour, "model/scribe/1/chat"))
    view.until("!!document.querySelector('[aria-label=Message]')")
    for text in ("Tell me a story.", "Who are you?"):
        view.type("[aria-label=Message]", text)
        view.click("form.card button.main")
        view.until("document.querySelector('.turn:last-child .meta').textContent.includes('in the prompt')")
    keep(view, "chat", tmp_path)


def test_picture_of_the_requests(view: Page, harbour: RunningServer, tmp_path: Path) -> None:
    view.go(console_of(harbour, "requests"))
    view.until_text("query-4711")
    entries = "[...document.querySelectorAll('details.entry')]"
    view.run(f"{entries}.find((one) => one.innerText.includes('query-4711')).open = true")
    view.until_text("altogether")
    keep(view, "requests", tmp_path)


def test_picture_on_a_phone_in_the_dark(browser: Browser, harbour: RunningServer, tmp_path: Path) -> None:
    page = browser.open(console_of(harbour), width=360, height=720, is_dark=True)
    page.until_text("tokenizer")
    keep(page, "phone", tmp_path)
    page.close()
