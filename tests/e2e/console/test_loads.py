"""Loads, unloads and reloads as an open page sees them: its own, those of others, and those that end elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, Page
from console_address import console_of
from console_models import ADD_ONE, config
from running_server import RunningServer, write_model
from try_form import send, until_answered

NUMBERS = config("IN INT32 2", "OUT INT32 2")
PATIENT = """
import pathlib
import time

class TritonPythonModel:
    def initialize(self, args):
        sign = pathlib.Path(args["model_repository"]) / "sign"
        while not sign.exists():
            time.sleep(0.05)
        if sign.read_text() == "fail":
            raise RuntimeError("no such weights")
"""
NOTICE = "document.querySelector('#main > .notice')?.textContent"


@pytest.fixture(scope="module")
def loads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, Path]]:
    """A server with a model that waits for a sign, and its repository."""
    folder = tmp_path_factory.mktemp("loads")
    write_model(folder, "numbers", ADD_ONE, NUMBERS)
    write_model(folder, "same", "", NUMBERS.replace('"python"', '"identity"'))
    write_model(folder, "patient", PATIENT, NUMBERS)
    loaded = ("--load-model=numbers", "--load-model=same")
    with RunningServer(folder, "--model-control-mode=explicit", *loaded) as server:
        server.wait_until_ready()
        yield server, folder / "model_repository"


def press(page: Page, label: str) -> None:
    """The button, and the answer to its question."""
    page.until(f"[...document.querySelectorAll('.spread button')].some((one) => one.textContent === '{label}')")
    page.run(f"[...document.querySelectorAll('.spread button')].find((one) => one.textContent === '{label}').click()")
    page.until("!!document.querySelector('dialog[open]')")
    page.click("dialog button.main")


def fill_in(page: Page) -> None:
    page.until("document.querySelectorAll('form.card input[type=number]').length === 2")
    page.run("document.querySelector('form.card input[type=number]').value = '41'")


IS_FILLED_IN = "document.querySelector('form.card input[type=number]')?.value === '41'"


@pytest.mark.parametrize(("sign", "told"), [("fail", "load failed for model 'patient'"), ("go", "patient was loaded")])
def test_load_that_ends_while_another_page_is_open_is_told_there(
    browser: Browser, loads: tuple[RunningServer, Path], sign: str, told: str
) -> None:
    server, repository = loads
    page = browser.open(console_of(server, "model/patient/newest"))
    press(page, "Load")
    server.until(lambda: server.index()["patient"].get("state") == "LOADING")
    page.run("location.hash = '#/model/numbers/1/try'")
    fill_in(page)
    (repository / "patient" / "sign").write_text(sign)
    page.until(f"{NOTICE}?.includes({json.dumps(told)})", 60)
    assert page.run("location.hash") == "#/model/numbers/1/try"
    assert page.run(IS_FILLED_IN)
    page.close()
    (repository / "patient" / "sign").unlink()


def test_reload_leaves_a_form_as_it_is_filled_in(browser: Browser, loads: tuple[RunningServer, Path]) -> None:
    server, repository = loads
    page = browser.open(console_of(server, "model/numbers/1/try"))
    fill_in(page)
    source = repository / "numbers" / "1" / "model.py"
    source.write_text(f"{source.read_text()}\n# changed\n")
    press(page, "Reload")
    page.until("document.body.innerText.includes('numbers was reloaded')", 60)
    page.until("[...document.querySelectorAll('.spread button')].every((one) => !one.disabled)")
    assert page.run("location.hash") == "#/model/numbers/1/try"
    assert page.run(IS_FILLED_IN)
    assert page.problems() == []
    page.close()


def test_tab_that_is_no_form_stays_as_well(browser: Browser, loads: tuple[RunningServer, Path]) -> None:
    server, _ = loads
    page = browser.open(console_of(server, "model/same/1/config"))
    page.until("document.body.innerText.includes('backend: \"identity\"')")
    press(page, "Unload")
    page.until_text("The model does not serve. This is its own file")
    press(page, "Load")
    page.until("document.querySelector('#announce').textContent === 'same was loaded'", 60)
    page.until("!!document.querySelector('.config') && document.body.innerText.includes('backend: \"identity\"')")
    assert page.run("location.hash") == "#/model/same/newest/config"
    page.close()


def test_copy_that_takes_the_place_of_another_within_a_second_is_seen(
    browser: Browser, loads: tuple[RunningServer, Path]
) -> None:
    server, _ = loads
    page = browser.open(console_of(server, "model/same/1"))
    page.until("!!document.querySelector('.cards.small')?.children.length")
    page.run("document.querySelector('.tabs').dataset.old = 'yes'")
    for verb in ("unload", "load"):
        assert server.ask("POST", f"/v2/repository/models/same/{verb}", {})[0] == 200
    page.until("!!document.querySelector('.tabs') && !document.querySelector('.tabs').dataset.old")
    page.close()


def test_model_that_goes_away_under_its_form_is_told(browser: Browser, loads: tuple[RunningServer, Path]) -> None:
    server, _ = loads
    two = {"data_type": "TYPE_INT32", "dims": [2]}
    ends = {"input": [{"name": "IN", **two}], "output": [{"name": "OUT", **two}]}
    brought = {"config": json.dumps({"backend": "identity", **ends}), "file:1/nothing": ""}  # it lies in no repository
    assert server.ask("POST", "/v2/repository/models/guest/load", {"parameters": brought})[0] == 200
    page = browser.open(console_of(server, "model/guest/1/try"))
    fill_in(page)
    page.until("!!document.querySelector('.cards.small')?.children.length")
    assert server.ask("POST", "/v2/repository/models/guest/unload", {})[0] == 200
    page.until("document.querySelector('.state')?.textContent === 'Gone'")
    page.until_text("there is no model 'guest'")
    assert page.run("document.querySelector('.tabs').textContent") == "OverviewConfigurationRequestsLog"
    assert page.run(IS_FILLED_IN)
    send(page)
    until_answered(page, "Request for unknown model: 'guest'")
    assert [told for told in page.problems() if "404" not in told] == []  # a browser writes those into its log
    page.close()
