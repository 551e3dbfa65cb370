"""The table of models in a real browser: live, in agreement with the metrics, and safe from what names say."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from browser import Page
from console_models import HOSTILE_NAME
from meanwhile import meanwhile
from models_rows import cell, row_of
from running_server import RunningServer, exchange, int_request


@contextmanager
def traffic(server: RunningServer, model: str) -> Iterator[None]:
    """Requests one after the other meanwhile."""

    def ask(is_over: threading.Event) -> None:
        connection = server.connect()
        while not is_over.is_set():
            exchange(connection, "POST", f"/v2/models/{model}/infer", int_request(1, 2))
            is_over.wait(0.002)

    with meanwhile(ask):
        yield


def test_every_model_has_a_row_with_its_state(page: Page, server: RunningServer) -> None:
    page.until_text("pipeline")
    page.until("document.querySelectorAll('tbody tr').length === 29")
    assert cell(page, "numbers", "State") == "Ready"
    assert cell(page, "numbers", "Instances") == "1"
    assert cell(page, "numbers", "Device") == "cpu"


def test_figures_move_under_load_and_agree_with_the_metrics(page: Page, server: RunningServer) -> None:
    page.until(f"!!{row_of('numbers')}")
    with traffic(server, "numbers"):
        rate = f"Number({row_of('numbers')}.querySelector('[data-label=\"Requests/s\"]').textContent)"
        page.until(f"{rate} > 5")
        page.until(f"{row_of('numbers')}.querySelector('[data-label=\"p99\"]').textContent.includes('s')")
    counted = int(server.value("nv_inference_request_success", model="numbers", version="1"))
    assert counted > 10
    page.until(f"{row_of('numbers')}.querySelector('[data-label=Requests]').textContent === '{counted:,}'")


SHOWN = "[...document.querySelectorAll('thead th')].filter((head) => head.offsetWidth).map((head) => head.textContent)"


@pytest.mark.parametrize(("width", "missing"), [(1240, set()), (1100, {"Requests"}), (950, {"Requests", "10 min"})])
def test_what_is_left_out_where_there_is_no_room(page: Page, width: int, missing: set[str]) -> None:
    page.until(f"!!{row_of('numbers')}")
    page.resize(1240)
    every = set(page.run(SHOWN))
    assert {"Device", "Memory", "Instances", "Batch"} < every
    page.resize(width)
    page.until(f"{SHOWN}.length === {len(every) - len(missing)}")
    assert every - set(page.run(SHOWN)) == missing
    assert page.run("document.querySelector('table').scrollWidth <= document.querySelector('table').clientWidth")


def test_hostile_name_is_text(page: Page, server: RunningServer) -> None:
    page.until(f"!!{row_of(HOSTILE_NAME)}")
    assert page.run("document.querySelectorAll('main img').length") == 0


def test_page_asks_nobody_else(watched_page: Page, server: RunningServer) -> None:
    watched_page.until(f"!!{row_of('numbers')}")
    origin = f"http://localhost:{server.ports['http']}/"
    asked = watched_page.requested()
    assert f"{origin}console/static/app.js" in asked
    assert [address for address in asked if not address.startswith(origin)] == []


def test_failed_request_of_an_ensemble_is_one_error(page: Page, server: RunningServer) -> None:
    page.until(f"!!{row_of('pipeline')}")
    before = int(cell(page, "pipeline", "Errors"))
    assert server.infer("pipeline", 666)[0] >= 400
    page.until(f"{row_of('pipeline')}.querySelector('[data-label=Errors]').textContent === '{before + 1}'")
    counted = server.value("nv_inference_request_failure", model="pipeline", version="1", reason="OTHER")
    assert counted == 2 * (before + 1)  # as in Triton


def test_models_without_a_device_have_their_place_in_the_order(page: Page, server: RunningServer) -> None:
    page.until("document.querySelectorAll('tbody tr').length > 5")
    page.run("[...document.querySelectorAll('thead button')].find((one) => one.textContent === 'Device').click()")
    page.until("!!document.querySelector('th[aria-sort] button') && !!document.querySelector('td[data-label=Device]')")
    script = "[...document.querySelectorAll('tbody td[data-label=Device]')].map((cell) => cell.textContent)"
    shown = page.run(script)
    assert shown == sorted(shown)
    assert {"", "cpu"} <= set(shown)
    page.run("[...document.querySelectorAll('thead button')].find((one) => one.textContent === 'Model').click()")
