"""The request of the form as a command and as programs, which are run."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from browser import Page
from console_models import ODD_NAME
from PIL import Image
from running_server import RunningServer
from try_form import answer, beep, open_form, python, run_in, run_snippet, send, set_field, snippet, until_answered

KEEP_ANSWER = """(() => {
  const fetch = window.fetch;
  window.fetch = async (path, options) => {
    const answer = await fetch(path, options);
    if (path.includes("/infer")) window.keptAnswer = (await answer.clone().text()).slice(-40);
    return answer;
  };
})()"""
WAYS = ("curl", "Python, tritonclient", "JavaScript")


@pytest.mark.parametrize("way", ["curl", "Python, tritonclient"])
def test_snippet_does_what_the_form_did(page: Page, server: RunningServer, tmp_path: Path, way: str) -> None:
    open_form(page, server, "numbers")
    set_field(page, "[aria-label='IN value 1']", "41")
    send(page)
    until_answered(page, "42")
    said = run_snippet(page, tmp_path, way)
    assert "42" in said
    assert way != "curl" or json.loads(said)["outputs"][0]["data"][0] == 42


@pytest.mark.parametrize("way", WAYS)
def test_snippet_names_the_version_that_was_tried(page: Page, server: RunningServer, tmp_path: Path, way: str) -> None:
    open_form(page, server, "editions")  # its second version adds a thousand
    set_field(page, "[aria-label='IN value 1']", "41")
    send(page)
    until_answered(page, "42")
    assert "42" in run_snippet(page, tmp_path, way)


@pytest.mark.parametrize("way", ["curl", "Python, tritonclient"])
def test_snippet_of_a_stream_gets_every_response(page: Page, server: RunningServer, tmp_path: Path, way: str) -> None:
    open_form(page, server, "countdown")
    set_field(page, "[aria-label='IN value 1']", "3")
    send(page)
    until_answered(page, "3 responses")
    said = run_snippet(page, tmp_path, way)
    if way == "curl":
        assert re.findall(r'"data":\s*\[(\d)\]', said) == ["3", "2", "1"]
    else:
        assert said.split("\n") == ["OUT [3]", "OUT [2]", "OUT [1]", ""]


@pytest.mark.parametrize("model", ["countdown", "beyond_json"])
def test_snippet_of_a_stream_ends_with_its_error(page: Page, server: RunningServer, tmp_path: Path, model: str) -> None:
    open_form(page, server, model)  # one fails at once, the other after its first response
    set_field(page, "[aria-label='IN value 1']", "666")
    send(page)
    until_answered(page, "no such number" if model == "countdown" else "no more of these")
    program = python(tmp_path, snippet(page, "Python, tritonclient"))
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path)
    assert done.returncode == 1
    assert "InferenceServerException" in done.stderr
    assert "None" not in done.stdout  # an output that has not come
    assert ("NUMBERS [ nan" in done.stdout) is (model == "beyond_json")
    page._browser.events.clear()  # a browser writes every answer of 400 or 500 into its log


@pytest.mark.parametrize("way", ["written", "read"])
def test_snippet_sends_brain_floats(page: Page, server: RunningServer, tmp_path: Path, way: str) -> None:
    open_form(page, server, "brain_floats" if way == "written" else "many_brain_floats")
    values = [-1.5, 0.25, 2.0] if way == "written" else [-1.5, *range(69), 0.25]
    set_field(page, "[aria-label='How to give IN']", "json")
    page.type("[aria-label='IN as JSON']", json.dumps(values))
    send(page)
    until_answered(page, "-1.5")
    page.run("document.querySelector('.snippets').open = true")
    save_body(page, server, tmp_path, "request.bin")
    said = run_in(tmp_path, snippet(page, "Python, tritonclient"), "Python, tritonclient")
    assert "-1.5" in said
    assert "0.25" in said


def save_body(page: Page, server: RunningServer, folder: Path, name: str) -> None:
    page._browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    page.run(f"[...document.querySelectorAll('button')].find((one) => one.textContent === 'Save {name}').click()")
    server.until(lambda: (folder / name).is_file())


def test_javascript_prints_all_of_the_answer(page: Page, server: RunningServer, tmp_path: Path) -> None:
    open_form(page, server, "numbers")
    set_field(page, "[aria-label='IN value 1']", "41")
    send(page)
    until_answered(page, "42")
    said = run_in(tmp_path, snippet(page, "JavaScript"), "JavaScript")
    assert json.loads(said)["outputs"][0]["data"] == [42, 1, 1, 1]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["pixels", "sound", "halves", "list", "letters"])
def test_snippet_sends_values_that_are_not_written_down(
    page: Page, server: RunningServer, tmp_path: Path, kind: str, way: str
) -> None:
    expected = fill_in(page, server, tmp_path, kind)
    send(page)
    page.until_text("Where the time went")
    page.run("document.querySelector('.snippets').open = true")
    save_body(page, server, tmp_path, "request.json" if kind in ("list", "letters") else "request.bin")
    said = run_in(tmp_path, snippet(page, way), way)
    if kind == "halves" and way in ("curl", "JavaScript"):
        said = str(np.frombuffer((tmp_path / "answer.bin").read_bytes()[-6:], np.float16))
    for word in expected:
        assert word in said


def fill_in(page: Page, server: RunningServer, tmp_path: Path, kind: str) -> list[str]:
    """What the model answers stands in the list."""
    if kind == "list":
        open_form(page, server, "numbers")
        set_field(page, "[aria-label='How to give IN']", "json")
        page.type("[aria-label='IN as JSON']", json.dumps(list(range(4000, 4100))))
        return ["4001", "4100"]
    if kind == "letters":  # more than a shell takes in one argument
        open_form(page, server, "echo")
        set_field(page, "[aria-label=TEXT]", "word " * 30_000 + "and the last")
        return ["word word", "and the last"]
    if kind == "halves":
        open_form(page, server, "halves")
        set_field(page, "[aria-label='IN value 1']", "-1.5")
        set_field(page, "[aria-label='IN value 3']", "0.25")
        return ["-1.5", "0.25"]
    open_form(page, server, "classes" if kind == "pixels" else "sound")
    if kind == "sound":
        page.choose_file("input[type=file]", beep(tmp_path / "beep.wav"))
        return ["1600"]
    Image.new("RGB", (32, 24), (51, 102, 255)).save(tmp_path / "blue.png")
    page.choose_file("input[type=file]", tmp_path / "blue.png")
    return ["0.2", "0.4", "1"]


@pytest.mark.parametrize("way", WAYS)
def test_snippet_prints_an_answer_that_is_no_number(
    page: Page, server: RunningServer, tmp_path: Path, way: str
) -> None:
    open_form(page, server, "hinted")  # 666 is no number to it
    set_field(page, "[aria-label='MORE value 1']", "666")
    send(page)
    until_answered(page, "NaN")
    assert "nan" in run_in(tmp_path, snippet(page, way), way).lower()


@pytest.mark.parametrize("way", WAYS)
def test_snippet_of_a_model_with_any_name(page: Page, server: RunningServer, tmp_path: Path, way: str) -> None:
    open_form(page, server, quote(ODD_NAME, safe=""))
    set_field(page, "[aria-label='IN value 1']", "41")
    send(page)
    until_answered(page, "42")
    assert "42" in run_snippet(page, tmp_path, way)


@pytest.mark.parametrize("way", WAYS)
def test_snippet_reads_the_file_that_was_chosen(page: Page, server: RunningServer, tmp_path: Path, way: str) -> None:
    picture = tmp_path / 'the "sea"; it\'s $HOME.png'
    Image.new("RGB", (60, 40), (200, 220, 255)).save(picture)
    open_form(page, server, "detector")
    page.choose_file("input[type=file]", picture)
    send(page)
    until_answered(page, str(picture.stat().st_size))
    assert str(picture.stat().st_size) in run_in(tmp_path, snippet(page, way), way)


@pytest.mark.parametrize("way", ["curl", "Python, requests", "JavaScript"])
def test_snippet_sends_a_picture_that_the_server_decodes(
    page: Page, server: RunningServer, tmp_path: Path, way: str
) -> None:
    Image.new("RGB", (32, 24), (51, 102, 255)).save(tmp_path / "blue.png")
    open_form(page, server, "photo")
    page.choose_file("input[type=file]", tmp_path / "blue.png")
    page.type("[aria-label=NOTE]", "@it's <here>")
    send(page)
    until_answered(page, "@it's <here>")
    assert '"@it' not in answer(page)
    said = run_in(tmp_path, snippet(page, way), way)
    assert "@it's <here>" in said
    assert "102" in said


@pytest.mark.parametrize("way", ["curl", "Python, requests", "JavaScript"])
def test_lines_of_a_text_beside_a_picture_end_as_they_were_written(
    page: Page, server: RunningServer, tmp_path: Path, way: str
) -> None:
    Image.new("RGB", (32, 24), (51, 102, 255)).save(tmp_path / "blue.png")
    open_form(page, server, "photo")
    page.choose_file("input[type=file]", tmp_path / "blue.png")
    page.type("[aria-label=NOTE]", "one\ntwo")
    page.run(KEEP_ANSWER)
    send(page)
    until_answered(page, "two")
    said = page.until("window.keptAnswer")
    assert said.endswith("one\ntwo")
    printed = run_in(tmp_path, snippet(page, way), way)
    assert json.dumps("one\ntwo")[1:-1] in printed


@pytest.mark.parametrize("way", ["curl", "Python, requests", "JavaScript"])
def test_picture_for_a_model_that_streams_is_answered_as_it_comes_and_by_the_snippets(
    page: Page, server: RunningServer, tmp_path: Path, way: str
) -> None:
    Image.new("RGB", (32, 24), (51, 102, 255)).save(tmp_path / "blue.png")
    open_form(page, server, "film")
    page.choose_file("input[type=file]", tmp_path / "blue.png")
    send(page)
    until_answered(page, "3 responses in")
    assert [number in answer(page) for number in ("51", "102", "255")] == [True] * 3
    page.until_text("Where the time went")
    said = run_in(tmp_path, snippet(page, way), way)
    assert [said.count(f'"data":[{number}.0]') for number in (51, 102, 255)] == [1] * 3
