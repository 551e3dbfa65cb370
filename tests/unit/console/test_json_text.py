"""The console's data as JSON."""

from __future__ import annotations

import json

from trireme.console.json_text import encode


def test_name_of_no_encoding_does_not_hide_the_rest() -> None:
    line = {"text": "no model 'b\udcff'", "number": 7, "deep": [("a\udc80", float("nan"))], "\udcff": None}
    assert json.loads(encode(line)) == {"text": "no model 'b?'", "number": 7, "deep": [["a?", None]], "?": None}


def test_text_that_is_right_stays_as_it_is() -> None:
    assert encode({"name": "schön <b>"}) == '{"name":"schön <b>"}'.encode()
