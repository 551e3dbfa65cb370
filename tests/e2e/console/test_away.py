"""A server that hangs or is gone for a while, and addresses of nothing: the page says so and finds its way back."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from browser import Browser, Page
from console_address import console_of
from console_models import ADD_ONE
from returning_server import ServerAt
from running_server import RunningServer, three_ports, write_model

MODELS = "!!document.querySelector('tbody .name')"


@pytest.mark.parametrize("address", ["constructor", "toString/x", "model"])
def test_address_of_nothing_is_told_and_the_way_back_is_open(page: Page, server: RunningServer, address: str) -> None:
    page.run(f"location.hash = '#/{address}'")
    page.until_text("There is no such page")
    assert "undefined" not in page.text()
    page.run("location.hash = '#/'")
    page.until(MODELS)


def test_tab_of_no_model_is_its_overview(page: Page, server: RunningServer) -> None:
    page.run("location.hash = '#/model/longs/1/constructor'")
    page.until("!!document.querySelector('.tabs')")
    page.until_text("Throughput")


def test_hung_server_is_not_live_and_comes_back(browser: Browser, tmp_path: Path) -> None:
    write_model(tmp_path, "numbers", ADD_ONE)
    with RunningServer(tmp_path) as server:
        server.wait_until_ready()
        page = browser.open(console_of(server))
        page.until(MODELS)
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            page.until("document.getElementById('vitals').innerText.includes('The server does not answer.')", 40)
            page.run("location.hash = '#/server'")
            page.until_text("Waiting for the server.")
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
        page.until("document.getElementById('vitals').innerText.includes('Live')", 60)
        page.until("document.querySelector('h1').innerText === 'Server'")
        page.close()


def test_view_that_was_asked_for_while_the_server_was_away_is_shown_when_it_is_back(
    browser: Browser, tmp_path: Path
) -> None:
    write_model(tmp_path, "numbers", ADD_ONE)
    ports = three_ports()
    with ServerAt(tmp_path, ports) as server:
        server.wait_until_ready()
        page = browser.open(console_of(server))
        page.until(MODELS)
    page.run("location.hash = '#/model/numbers/1/try'")
    page.until("document.querySelector('main').innerText.includes('The server does not answer.')")
    with ServerAt(tmp_path, ports) as server:
        server.wait_until_ready()
        page.until("!!document.querySelector('form.card')", 60)
        page.close()


def test_page_of_a_model_follows_what_others_do_with_it(page: Page, server: RunningServer) -> None:
    buttons = "[...document.querySelectorAll('.spread button')].map((one) => one.textContent).join()"
    page.run("location.hash = '#/model/longs/1'")
    page.until(f"{buttons} === 'Reload,Unload'")
    page.until("!!document.querySelector('.cards.small')?.children.length")
    assert server.ask("POST", "/v2/repository/models/longs/unload", {})[0] == 200
    page.until(f"{buttons} === 'Load'")
    assert not page.run("[...document.querySelectorAll('.tabs a')].some((one) => one.textContent === 'Try it')")
    assert server.ask("POST", "/v2/repository/models/longs/load", {})[0] == 200
    page.until(f"{buttons} === 'Reload,Unload'")


def test_try_tab_of_a_model_that_does_not_serve_is_its_overview(page: Page, server: RunningServer) -> None:
    buttons = "[...document.querySelectorAll('.spread button')].map((one) => one.textContent).join()"
    assert server.ask("POST", "/v2/repository/models/longs/unload", {})[0] == 200
    page.run("location.hash = '#/model/longs/1/try'")
    page.until(f"{buttons} === 'Load'")
    page.until("!document.querySelector('.cards.small').children.length")
    assert "Cannot read" not in page.text()
    assert server.ask("POST", "/v2/repository/models/longs/load", {})[0] == 200
    page.until(f"{buttons} === 'Reload,Unload'")


def test_form_that_is_filled_in_stays_when_others_unload_its_model(page: Page, server: RunningServer) -> None:
    buttons = "[...document.querySelectorAll('.spread button')].map((one) => one.textContent).join()"
    page.run("location.hash = '#/model/longs/1/try'")
    page.until("!!document.querySelector('form.card input, form.card textarea')")
    page.until("!!document.querySelector('.cards.small')?.children.length")
    page.run("document.querySelector('form.card').dataset.mine = 'yes'")
    assert server.ask("POST", "/v2/repository/models/longs/unload", {})[0] == 200
    page.until(f"{buttons} === 'Load'")
    assert server.ask("POST", "/v2/repository/models/longs/load", {})[0] == 200
    page.until(f"{buttons} === 'Reload,Unload'")
    assert page.run("document.querySelector('form.card').dataset.mine") == "yes"


def test_key_that_no_header_can_hold_is_not_taken(page: Page, server: RunningServer) -> None:
    page.run("void import('/console/static/parts/api.js').then((found) => found.changeKey())")
    page.until("!!document.querySelector('#key')")
    page.type("#key", "schlüssel")
    page.click("dialog button.main")
    assert page.run("document.querySelector('#key').validity.patternMismatch")
    page.type("#key", " plain-key ")
    assert page.run("document.querySelector('#key').validity.valid")


def test_form_with_a_picture_carries_sequences_and_numbers(modules: Page) -> None:
    numbers = "{name: 'N', datatype: 'INT32', data: new Uint8Array(Int32Array.of(5, 600).buffer)}"
    given = f"[{{name: 'P', form: new Blob(['x']), file: 'p.png'}}, {numbers}]"
    fields = modules.run(
        "import('/console/static/trying/requests.js').then((found) => found.formFields("
        f"{given}, {{sequence_id: 7, sequence_start: true}}, true).map(({{name, value}}) => [name, value ?? null]))"
    )
    assert fields == [
        ["P", None],
        ["N", "[5,600]"],
        ["sequence_id", "7"],
        ["sequence_start", "true"],
        ["binary_data_output", "true"],
    ]


@pytest.mark.parametrize(
    ("status", "groups", "is_advised"),
    [(403, "inference, statistics", True), (500, "inference", False), (403, "$(x)", False)],
)
def test_command_is_made_of_the_servers_own_words_alone(
    modules: Page, status: int, groups: str, is_advised: bool
) -> None:
    said = f"the key is not allowed to use 'logging' (its groups: {groups})"
    error = json.dumps({"message": said, "status": status})
    told = modules.run(f"import('/console/static/parts/dom.js').then(({{advised}}) => advised({error}))")
    assert ("trireme keys new" in told) == is_advised
    assert told.startswith(said)
