"""Which answers with status 200 are inference responses."""

from __future__ import annotations

import pytest

from trireme.tools.perf.wire.answers import HTTP, http_fault, mismatch, outputs_of

GOOD = b'{"outputs":[{"name":"O","datatype":"FP32","shape":[1],"data":[%b]}]}'


@pytest.mark.parametrize("value", [b"1.5", b"NaN", b"-Infinity", b'"\xff\xfe"'])
def test_what_servers_write_is_an_answer(value: bytes) -> None:
    assert http_fault(None, GOOD % value) == ""
    assert list(outputs_of(HTTP, (None, GOOD % value))) == ["O"]


def test_numbers_that_json_does_not_have_are_compared() -> None:
    outputs = outputs_of(HTTP, (None, GOOD % b"NaN, Infinity"))
    nan, inf = bytes.fromhex("0000c07f"), bytes.fromhex("0000807f")
    assert mismatch(outputs, {"O": nan + inf}) is None
    assert mismatch(outputs, {"O": nan + nan}) == "Output doesn't match expected output: 'O' differs"


@pytest.mark.parametrize("parameters", ["null", "[1]", '{"binary_data_size":4}'])
def test_what_an_answer_leaves_out_is_no_failure(parameters: str) -> None:
    body = b'{"outputs":[{"name":"O","parameters":%b}]}' % parameters.encode()
    assert list(outputs_of(HTTP, (len(body), body + b"1234"))) == ["O"]


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"{}", b"[1]", b'{"outputs":7}', b'{"outputs":[{}]}', b"[" * 100_000, GOOD % b"1" + b"}"]
)
def test_anything_else_is_none(body: bytes) -> None:
    assert http_fault(None, body) != ""
