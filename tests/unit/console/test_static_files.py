"""The files of the page: small, whole, readable, and free of anything that the page's own rules would refuse."""

from __future__ import annotations

import gzip
import posixpath
import re
from collections import Counter

import pytest

from trireme.console.static_files import static_files

MAX_SENT_BYTES = 64_000
MAX_BYTES = 150_000
MAX_LINES = 400
MAX_COLUMNS = 120
MAX_FUNCTION_LINES = 60
MAX_FILES = 15
INDENT = 2
SCRIPTS = sorted(name for name in static_files() if name.endswith(".js"))
STYLES = sorted(name for name in static_files() if name.endswith(".css"))
FUNCTION = re.compile(r"\bfunction\*? ?\w*\(|=> \{$|^ *(?:async )?\w+\([^()]*\) \{$")


def lines_of(name: str) -> list[str]:
    return static_files()[name].data.decode().expandtabs(INDENT).splitlines()


def test_page_is_small_as_it_is_sent_and_not_large_for_clients_that_take_nothing_compressed() -> None:
    assert sum(len(file.compressed) for file in static_files().values()) < MAX_SENT_BYTES
    assert sum(len(file.data) for file in static_files().values()) < MAX_BYTES


def test_every_style_sheet_is_loaded_and_the_one_with_what_screens_change_last() -> None:
    page = static_files()["index.html"].data.decode()
    loaded = re.findall(r'<link rel="stylesheet" href="/console/static/([a-z/]+\.css)">', page)
    assert sorted(loaded) == STYLES
    assert loaded[-1] == "styles/texts.css"
    assert "/* What changes with the width of the screen" in static_files()[loaded[-1]].data.decode()


def test_every_file_that_is_named_is_there() -> None:
    files = static_files()
    named = 0
    for path, file in files.items():
        text = file.data.decode()
        for name in re.findall(r"/console/static/([a-z_/]+\.[a-z]+)", text):
            assert name in files
        for name in re.findall(r"""(?:from|import|lazy)\(?\s*["'](\.[^"']+)["']""", text):
            assert posixpath.normpath(posixpath.join(posixpath.dirname(path), name)) in files, (path, name)
            named += 1
    assert named > len(SCRIPTS)


def test_compressed_form_is_the_same_and_made_once() -> None:
    for file in static_files().values():
        assert gzip.decompress(file.compressed) == file.data
        assert file.compressed is file.compressed


def test_nothing_becomes_markup_and_nobody_else_is_asked() -> None:
    for name, file in static_files().items():
        text = file.data.decode()
        assert re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text) is None
        assert "http://" not in text.replace("http://www.w3.org/", ""), name
        assert "https://" not in text, name
    page = static_files()["index.html"].data.decode()
    assert "<style" not in page
    assert " style=" not in page
    assert re.search(r"<script(?! type=\"module\" src=)", page) is None


def test_folders_can_be_taken_in_at_a_glance() -> None:
    counts = Counter(posixpath.dirname(name) for name in static_files())
    assert {folder: count for folder, count in counts.items() if count > MAX_FILES} == {}


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_can_be_read(name: str) -> None:
    lines = lines_of(name)
    assert lines[0].startswith("// "), "the first line says what the file is for"
    assert len(lines) <= MAX_LINES
    assert [line for line in lines if len(line) > MAX_COLUMNS] == []
    assert long_functions(lines) == []


@pytest.mark.parametrize("name", STYLES)
def test_style_sheet_can_be_read(name: str) -> None:
    lines = lines_of(name)
    assert lines[0].startswith("/* "), "the first line says what the file is for"
    assert len(lines) <= MAX_LINES
    assert [line for line in lines if len(line) > MAX_COLUMNS] == []
    assert [line for line in lines if len(re.findall(r"[a-z-]+: [^;]*;", line)) > 1] == [], "one declaration in a line"
    assert [line for line in lines if re.search(r"[a-z-]:[^\s:a-z-]|\}.*\{", line)] == [], "one rule in a line"


def long_functions(lines: list[str]) -> list[tuple[str, int]]:
    """Those that are longer than a screen: a function ends with the first line that is indented as it is and closes."""
    found = []
    for at, line in enumerate(lines):
        if FUNCTION.search(line) is None or not line.endswith(("{", "(")):
            continue
        indent = len(line) - len(line.lstrip())
        closes = re.compile(rf" {{{indent}}}[}})\]]")
        end = next((number for number in range(at + 1, len(lines)) if closes.match(lines[number])), at)
        if end - at + 1 > MAX_FUNCTION_LINES:
            found.append((line.strip(), end - at + 1))
    return found


def test_long_functions_are_seen() -> None:
    body = ["  work();"] * MAX_FUNCTION_LINES
    assert long_functions(["export function long() {", *body, "}"]) == [("export function long() {", 62)]
    assert long_functions(["const long = async () => {", *body, "};"]) == [("const long = async () => {", 62)]
    assert long_functions(["export function fine() {", *body[2:], "}", "function other() {", "}"]) == []
