"""What requests may ask for, written in the language of the library that compiles grammars."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

_JSON_OPTIONS = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}
"""On one line, with at most a space behind commas and colons: a model that may write any spaces that JSON allows may
write them until its tokens are used up."""

JSON_RULE: Final = "%json "
"""Stands before a schema that is a part of a grammar."""

Schema = Mapping[str, Any] | bool


def lark_source(text: str) -> str:
    """A grammar in Lark's notation."""
    return json.dumps({"grammars": [{"lark_grammar": text}]})


def json_source(schema: Schema) -> str:
    """JSON that follows a schema."""
    return json.dumps({"grammars": [{"json_schema": _plain(schema)}]})


def choice_source(choices: Sequence[str]) -> str:
    """One of some texts: a terminal, as the library follows no more than 2000 rules side by side."""
    return lark_source("start: CHOICE\nCHOICE: " + " | ".join(literal(choice) for choice in choices))


def json_rule(schema: Schema) -> str:
    """A schema as a part of a grammar in Lark's notation."""
    return f"{JSON_RULE}{json.dumps(_plain(schema))}"


def literal(text: str) -> str:
    """A text as a part of a grammar in Lark's notation."""
    return json.dumps(text, ensure_ascii=False)


def _plain(schema: Schema) -> dict[str, Any]:
    plain: dict[str, Any] = dict(schema) if isinstance(schema, Mapping) else {} if schema else {"enum": []}
    return {**plain, "x-guidance": _JSON_OPTIONS}
