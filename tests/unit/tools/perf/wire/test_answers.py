"""Which answers with status 200 are inference responses."""

from __future__ import annotations

import pytest

from trireme.tools.perf.wire.answers import http_fault

GOOD = b'{"outputs":[{"name":"O","datatype":"FP32","shape":[1],"data":[%b]}]}'


@pytest.mark.parametrize("value", [b"1.5", b"NaN", b"-Infinity", b'"\xff\xfe"'])
def test_what_servers_write_is_an_answer(value: bytes) -> None:
    assert http_fault(None, GOOD % value) == ""


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"{}", b"[1]", b'{"outputs":7}', b'{"outputs":[{}]}', b"[" * 100_000, GOOD % b"1" + b"}"]
)
def test_anything_else_is_none(body: bytes) -> None:
    assert http_fault(None, body) != ""
