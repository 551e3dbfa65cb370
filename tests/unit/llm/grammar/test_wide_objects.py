"""Objects with more optional properties than can be followed are refused before anything is written."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from trireme.llm import Engine, SamplingError
from trireme.llm.grammar.sources import json_rule, json_source, lark_source
from trireme.llm.grammar.token_bits import as_mask
from trireme.llm.grammar.wide_objects import wide_objects


def properties(count: int, value: object = True) -> dict[str, Any]:
    return {f"p{number}": value for number in range(count)}


def wide(count: int, **fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties(count, {"type": "integer"}), **fields}


SHAPES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "itself": lambda found: found,
    "in a property": lambda found: {"properties": {"a": {"properties": {"properties": found}}}, "required": ["a"]},
    "in a list": lambda found: {"type": "array", "items": found, "minItems": 2},
    "as an alternative": lambda found: {"properties": {"a": {"anyOf": [{"type": "null"}, found]}}},
    "by reference": lambda found: {"properties": {"a": {"$ref": "#/$defs/x~1y"}}, "$defs": {"x/y": found}},
    "by its place": lambda found: {
        "properties": {"a": {"$ref": "#/$defs/x/anyOf/1"}},
        "$defs": {"x": {"anyOf": [True, found]}},
    },
    "by a reference with escapes": lambda found: {
        "properties": {"a": {"$ref": "#/%24defs/x%20y"}},
        "$defs": {"x y": found},
    },
    "by its anchor": lambda found: {
        "properties": {"a": {"$ref": "#x"}},
        "$defs": {"b": {"$anchor": "x", **found}},
    },
    "by its id": lambda found: {
        "properties": {"a": {"$ref": "x.json"}},
        "$defs": {"b": {"$id": "x.json", **found}},
    },
    "in itself": lambda found: {
        "properties": {"a": {**found, "properties": {**found["properties"], "again": {"$ref": "#/properties/a"}}}}
    },
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_one_that_is_too_wide_is_refused_wherever_it_stands(
    scribe: Engine, shape: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    with pytest.raises(SamplingError) as refused:
        scribe.grammars.json_schema(shape(wide(510, additionalProperties=False)))
    told = str(refused.value)
    assert told.startswith("'guided_json' cannot be compiled: more may come next than can be followed, "), told
    assert "possibilities side by side where 2000 are taken; list properties as required" in told
    assert "left-recursive" not in told
    assert scribe.grammars.json_schema(shape(wide(480, additionalProperties=False)))


@pytest.mark.parametrize(
    "schema",
    [
        wide(2000, required=[*properties(2000)]),
        wide(900, required=["p300", "p600"], additionalProperties=False),
        {"const": {"properties": properties(900)}},
        {"type": "integer", "$defs": {"unused": wide(900)}},
        {"$ref": "#/$defs/properties", "$defs": {"properties": {"type": "null"}, "other": wide(600)}},
    ],
)
def test_one_that_can_be_followed_is_taken(scribe: Engine, schema: dict[str, Any]) -> None:
    state = scribe.grammars.json_schema(schema).start()
    for _ in range(12):
        if state.is_finished:
            break
        state.advance(int(as_mask(state.allowed(4096), 4096).nonzero()[0][-1]))
        assert not state.error


def test_arguments_of_a_tool_are_looked_at_as_well(scribe: Engine) -> None:
    text = f'start: "<tool_call>" {json_rule(wide(600))} "</tool_call>"'
    with pytest.raises(SamplingError, match=r"^'tools' cannot be compiled: more may come next than can be followed"):
        scribe.grammars.lark(text, "tools")


def test_rules_that_begin_alike_are_refused_as_well(scribe: Engine) -> None:
    count = 2500
    rules = "".join(f'r{number}: "a"* "{number};"\n' for number in range(count))
    with pytest.raises(SamplingError, match="'guided_grammar' cannot be compiled: more may come next than can be"):
        scribe.grammars.notation(f"start: {' | '.join(f'r{number}' for number in range(count))}\n{rules}")


def test_what_is_looked_at_is_the_objects_without_what_is_in_them() -> None:
    found = [json.loads(one)["grammars"][0]["json_schema"] for one in wide_objects(json_source(wide(450)))]
    assert [len(one["properties"]) for one in found] == [450]
    assert found[0]["properties"]["p7"] == {"type": "null"}
    assert wide_objects(json_source(wide(450, required=[*properties(100)]))) == []
    assert wide_objects(lark_source('start: "%json {" "properties"')) == []


@pytest.mark.parametrize(
    "strange",
    [
        {"properties": [1], "required": 3},
        {"properties": {"a": 7}, "required": [[], {}, 3]},
        {"$ref": "#/nowhere/7"},
        {"$ref": 3},
        {"$ref": "x.json#/a/b", "$id": ["x.json"], "$anchor": {}},
        {"$ref": "#", "properties": {"$id": {"$ref": "%"}}},
        {"$ref": "#/anyOf/7", "anyOf": [1]},
        {"$ref": f"#/anyOf/{'9' * 5000}", "anyOf": [1]},
        {"properties": properties(900), "required": ["absent", "p1", "p1"]},
    ],
)
def test_schemas_that_are_none_do_no_harm(strange: dict[str, Any]) -> None:
    assert isinstance(wide_objects(json_source(strange)), list)


def test_a_long_list_is_walked_through_once_however_many_references_lead_to_it() -> None:
    count = 8000
    source = json_source({
        "anyOf": [{"$ref": "#/enum"} for _ in range(count)],
        "enum": [*range(4 * count), wide(450)],
    })  # fmt: skip
    began_s = time.process_time()
    assert len(wide_objects(source)) == 1
    assert time.process_time() - began_s < 5, "each reference has walked through the list"


def test_one_that_was_not_foreseen_is_told_in_the_same_words(scribe: Engine) -> None:
    """Two halves of an object, which the library puts together."""
    halves = [{"properties": {f"{half}{number}": {"const": 1} for number in range(300)}} for half in "pq"]
    state = scribe.grammars.json_schema({"properties": {"a": {"allOf": halves}}, "required": ["a"]}).start()
    for token in scribe.tokenizer.encode('{"a":{', add_special=False):
        state.advance(token)
    assert state.error.startswith("'guided_json' cannot be followed: more may come next than can be followed, "), state
    assert "left-recursive" not in state.error
