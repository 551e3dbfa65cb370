"""The files of the page: small, whole, and free of anything that the page's own rules would refuse."""

from __future__ import annotations

import gzip
import re

from trireme.console.static_files import static_files

MAX_BYTES = 150_000


def test_page_is_small() -> None:
    assert sum(len(file.data) for file in static_files().values()) < MAX_BYTES


def test_every_file_that_is_named_is_there() -> None:
    files = static_files()
    for file in files.values():
        text = file.data.decode()
        for name in re.findall(r"/console/static/([a-z_]+\.[a-z]+)", text):
            assert name in files
        for name in re.findall(r"""(?:from|import|lazy)\(?\s*["']\./([^"']+)["']""", text):
            assert name in files


def test_compressed_form_is_the_same() -> None:
    for file in static_files().values():
        assert gzip.decompress(file.compressed) == file.data


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
