"""A model's page: charts, configuration, statistics, log, requests, and its life under confirmation."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from browser import Browser, Page
from console_address import console_of
from console_models import config
from running_server import RunningServer, write_model

NUMBERS = config("IN INT32 -1", "OUT INT32 -1")


def test_charts_and_figures_of_a_model(page: Page, server: RunningServer) -> None:
    for number in range(20):
        server.infer("numbers", number)
    page.go(console_of(server, "model/numbers/1"))
    page.until_text("Mean latency by phase")
    page.until("document.querySelectorAll('.chart svg path').length >= 8")
    assert "[batch, any]" in page.text()


def test_configuration_says_what_was_completed(page: Page, server: RunningServer) -> None:
    page.go(console_of(server, "model/numbers/1/config"))
    page.until_text("max_batch_size: 8")
    lines = page.run("[...document.querySelectorAll('.config li')].map((line) => line.innerText.split('\\n')[0])")
    assert 'backend: "python"' in lines
    assert any(line.startswith('default_model_filename: "model.py"') and line.endswith("completed") for line in lines)
    assert not any(line.endswith("default") for line in lines)
    page.click("#defaults")
    page.until_text("FORMAT_NONE")


def test_statistics_and_log(page: Page, server: RunningServer) -> None:
    server.infer("numbers", 1)
    page.go(console_of(server, "model/numbers/1/statistics"))
    page.until_text("executions")
    page.go(console_of(server, "model/numbers/1/log"))
    page.until_text("successfully loaded 'numbers'")


def test_model_is_unloaded_and_loaded_again(page: Page, server: RunningServer) -> None:
    page.go(console_of(server, "model/echo/1"))
    page.until("!!document.querySelector('button.danger')")
    page.click("button.danger")
    page.until("!!document.querySelector('dialog[open]')")
    assert server.index()["echo"]["state"] == "READY"
    page.press("Escape", code="Escape", windowsVirtualKeyCode=27)
    page.until("!document.querySelector('dialog')")
    assert server.index()["echo"]["state"] == "READY"
    page.click("button.danger")
    page.click("dialog button.main")
    page.until_text("Unloaded")
    assert server.index()["echo"]["state"] == "UNAVAILABLE"
    ask_for(page, "Load")
    page.click("dialog button.main")
    page.until("!!document.querySelector('.state.good')")
    assert server.index()["echo"]["state"] == "READY"


def ask_for(page: Page, label: str) -> str:
    """The text of the question that the button asks."""
    page.until(f"[...document.querySelectorAll('main button')].some((one) => one.textContent === '{label}')")
    page.run(f"[...document.querySelectorAll('main button')].find((one) => one.textContent === '{label}').click()")
    return str(page.until("document.querySelector('dialog[open]')?.innerText"))


def test_reload_says_whether_anything_was_loaded(page: Page, server: RunningServer, console_folder: Path) -> None:
    page.go(console_of(server, "model/hinted/1"))
    assert "where it has not, nothing is loaded" in ask_for(page, "Reload")
    page.click("dialog button.main")
    page.until_text("hinted is as it was: nothing in its folder has changed since it was loaded.")
    assert page.run("document.getElementById('announce').textContent") == ""
    source = console_folder / "model_repository" / "hinted" / "1" / "model.py"
    source.write_text(source.read_text() + "\n# changed\n")
    ask_for(page, "Reload")
    page.click("dialog button.main")
    page.until("document.getElementById('announce').textContent === 'hinted was reloaded'")
    page.run(
        "new MutationObserver(() => (window.isSaidAgain = true))"
        ".observe(document.getElementById('announce'), {childList: true})"
    )
    source.write_text(source.read_text() + "\n# changed again\n")
    ask_for(page, "Reload")
    page.click("dialog button.main")
    page.until("window.isSaidAgain === true")


def test_question_before_an_unload_names_the_ensembles_that_go_along(page: Page, server: RunningServer) -> None:
    page.go(console_of(server, "model/numbers/1"))
    assert "the ensembles that it is a step of: pipeline." in ask_for(page, "Unload")
    page.press("Escape", code="Escape", windowsVirtualKeyCode=27)
    page.go(console_of(server, "model/pipeline/1"))
    page.until("document.querySelector('h1').textContent === 'pipeline'")
    assert "ensembles" not in ask_for(page, "Unload")
    page.press("Escape", code="Escape", windowsVirtualKeyCode=27)


def test_question_before_an_unload_says_that_all_versions_go(page: Page, server: RunningServer) -> None:
    page.go(console_of(server, "model/editions/1"))
    assert "All of its versions go: 1, 2." in ask_for(page, "Unload")
    page.press("Escape", code="Escape", windowsVirtualKeyCode=27)


LEGEND = """import('/console/static/parts/charts.js').then(async ({Chart}) => {
  const {time, rate} = await import('/console/static/parts/dom.js');
  const one = new Chart({title: 'One', format: %s});
  document.querySelector('main').append(one.node);
  const events = [{time_s: 1, text: 'x'}];
  one.set({times: [1, 2], series: [{name: 'p50', values: [5, 0], color: 1}], events, eventName: 'a worker failed'});
  while (!one.legend.textContent) await new Promise((go) => setTimeout(go, 20));
  one.stop();
  const mark = one.legend.lastChild.firstChild;
  const bad = document.createElement('span');
  bad.className = 'some-bad';
  mark.parentNode.append(bad);
  return [one.legend.innerText, getComputedStyle(mark).color === getComputedStyle(bad).color];
})"""


def test_legend_names_what_is_marked_in_the_chart_alone(page: Page, server: RunningServer) -> None:
    words, _ = page.run((LEGEND % "rate").replace("times: [1, 2]", "times: [9001, 9002]").replace(".lastChild.", "."))
    assert words.split() == ["p50", "0"]


@pytest.mark.parametrize(("form", "word"), [("time", "\N{EN DASH}"), ("rate", "0")])
def test_chart_of_no_request_has_no_time_of_one(page: Page, server: RunningServer, form: str, word: str) -> None:
    words, is_marked = page.run(LEGEND % form)
    assert words.split() == ["p50", word, "┃", "a", "worker", "failed"]
    assert is_marked, "the mark has not the colour of the line"


def test_time_of_a_load_is_told_as_long_as_it_was(page: Page, server: RunningServer) -> None:
    took = json.loads(server.ask("GET", "/console/api/models/brain_floats")[2])["serving"]["load_seconds"]
    assert took < 1
    page.go(console_of(server, "model/brain_floats/1"))
    page.until_text("Backend identity")
    assert re.search(r"loaded at [\d:]+ in [\d.]+ (µs|ms)", page.text())


def test_types_are_not_broken_on_a_phone(page: Page, server: RunningServer) -> None:
    page.resize(360)
    page.go(console_of(server, "model/scribe/1"))  # which has long names beside them
    page.until("!!document.querySelector('main .two td')")
    lines = (
        "[...document.querySelectorAll('main .two td:nth-child(2)')].map((cell) => {"
        " const range = document.createRange(); range.selectNodeContents(cell);"
        " return new Set([...range.getClientRects()].map((box) => box.top)).size; })"
    )
    assert set(page.run(lines)) == {1}


def test_worker_that_died_is_shown_with_its_reason(page: Page, server: RunningServer) -> None:
    status, _ = server.infer("again", 667)
    assert status >= 400
    server.until_ready("again")
    page.go(console_of(server, "model/again/1"))
    page.until_text("Ended by itself")
    page.until("/The worker process \\(pid \\d+\\) exited with code 3\\.$/m.test(document.body.innerText)")
    page.until_text("Started again", 30)


def test_ensemble_is_drawn_with_its_steps(page: Page, server: RunningServer) -> None:
    server.infer("pipeline", 1)
    page.go(console_of(server, "model/pipeline/1"))
    page.until("document.querySelectorAll('.graph rect').length === 4")
    assert page.run("[...document.querySelectorAll('.graph a')].map((link) => link.getAttribute('href'))") == [
        "#/model/numbers/1",
        "#/model/again/1",
    ]


CHARTS = "[...document.querySelectorAll('.chart')].filter((one) => !one.hidden).map((one) => one.innerText)"


def test_ensemble_has_no_charts_of_workers(page: Page, server: RunningServer) -> None:
    server.infer("pipeline", 1)
    page.go(console_of(server, "model/numbers/1"))
    page.until(f"{CHARTS}.some((text) => text.startsWith('Memory of its workers'))")
    page.go(console_of(server, "model/pipeline/1"))
    page.until("document.querySelector('h1').textContent === 'pipeline'")
    page.until(f"{CHARTS}.some((text) => text.startsWith('Throughput'))")
    assert not any("workers" in text for text in page.run(CHARTS))


def test_slow_and_failed_requests_have_their_error_and_waterfall(page: Page, server: RunningServer) -> None:
    server.infer("numbers", 700, request_id="slow-one")
    server.infer("numbers", 666)
    server.ask("POST", "/v2/models/numbers/infer", {"inputs": []})
    page.go(console_of(server, "requests"))
    page.until_text("the number of the beast <img src=x onerror=alert(4)>")
    page.until_text("slow-one")
    page.until_text("Refused")
    entry = "[...document.querySelectorAll('details.entry')].find((entry) => entry.innerText.includes('slow-one'))"
    page.run(f"{entry}.open = true")
    page.until(f"{entry}.innerText.includes('altogether')")
    said = page.run(f"{entry}.innerText")
    assert "model" in said
    assert "queue" in said or "parse" in said
    assert page.run("document.querySelectorAll('main img').length") == 0


def test_why_a_load_failed_stays_to_be_read(browser: Browser, tmp_path: Path) -> None:
    write_model(tmp_path, "broken", "this is no Python", NUMBERS)
    with RunningServer(tmp_path, "--model-control-mode=explicit") as server:
        server.wait_until_listening()
        assert server.status("/console/api/models/broken") == 200  # though nobody has looked at the folders before
        page = browser.open(console_of(server, "model/broken/newest"))
        page.until_text("Charts appear here when the model has been loaded")
        assert page.run(f"{CHARTS}.length") == 0
        page.until("[...document.querySelectorAll('main button')].some((button) => button.textContent === 'Load')")
        page.click("main .spread button")
        page.click("dialog button.main")
        page.until_text("load failed for model 'broken'")
        time.sleep(2.5)  # as long as it takes the figures to move twice
        assert "load failed for model 'broken'" in page.text()
        page.until_text("The model failed to load, so there are no charts of it.")
        assert "Charts appear here" not in page.text()
        page.go(console_of(server, "model/broken/newest/config"))
        page.until_text("The model does not serve. This is its own file")
        assert "data_type: TYPE_INT32" in page.run("document.querySelector('pre.code').textContent")
        page.go(console_of(server))
        page.until("document.querySelector('tbody .sub').innerText.includes('SyntaxError')")
        page.close()


def test_view_that_comes_late_does_not_take_the_place_of_another(page: Page, server: RunningServer) -> None:
    page.run(
        "(() => { const fetch = window.fetch; window.fetch = async (path, options) => {"
        " if (path.includes('/api/models/')) await new Promise((go) => setTimeout(go, 700));"
        " return fetch(path, options); }; })()"
    )
    page.run("location.hash = '#/model/numbers/1'")
    page.run("location.hash = '#/requests'")
    page.until_text("Slowest")
    time.sleep(1.5)
    assert page.run("document.querySelector('h1').textContent") == "Requests"


@pytest.mark.parametrize("name", ["nothing", "../etc"])
def test_model_that_is_not_there_is_told(page: Page, server: RunningServer, name: str) -> None:
    page.run("console.clear()")
    page.go(console_of(server, f"model/{name.replace('/', '%2F')}/newest"))
    page.until_text("there is no model")
    page._browser.events.clear()  # a browser writes every answer of 404 into its log


def test_language_model_has_charts_of_what_its_time_goes_into(page: Page, server: RunningServer) -> None:
    asked = {"model": "scribe", "prompt": "Once upon a time", "max_tokens": 20, "ignore_eos": True}
    assert server.ask("POST", "/v1/completions", asked)[0] == 200
    page.go(console_of(server, "model/scribe/1"))
    page.until(
        f"{CHARTS}.some((text) => text.startsWith('Mean time of an answer by phase'))", 30
    )  # a step is ten seconds
    shown = page.run(CHARTS)
    assert any(text.startswith("Time to the first token") for text in shown)
    assert any(text.startswith("Tokens per second") for text in shown)
    assert not any(text.startswith(("Mean latency by phase", "Rows per execution")) for text in shown)
    server.infer("numbers", 1)
    page.go(console_of(server, "model/numbers/1"))
    page.until(f"{CHARTS}.some((text) => text.startsWith('Mean latency by phase'))", 30)
    assert not any("token" in text for text in page.run(CHARTS))
