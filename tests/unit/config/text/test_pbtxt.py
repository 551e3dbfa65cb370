"""config.pbtxt in the spellings people use, and errors that say where and what."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trireme.config.message import ConfigMessage
from trireme.config.text.pbtxt import parse_text
from trireme.core.errors import InvalidArgumentError, ServingError


def parse(text: str) -> ConfigMessage:
    return parse_text(text, "m/config.pbtxt")


def complaint(text: str) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        parse(text)
    assert caught.value.message.startswith("failed to read text proto from m/config.pbtxt")
    return caught.value.message


@pytest.mark.parametrize("word", ["true", "True", "TRUE", "t", "1"])
def test_every_spelling_of_true_is_read(word: str) -> None:
    assert parse(f"response_cache {{ enable: {word} }}").response_cache.enable is True


@pytest.mark.parametrize("word", ["false", "False", "FALSE"])
def test_every_spelling_of_false_is_read(word: str) -> None:
    assert parse(f"response_cache {{ enable: {word} }}").response_cache.enable is False


@pytest.mark.parametrize(
    "text",
    [
        'input [ { name: "a" dims: [ -1, 2 ] }, { name: "b" } ]',
        'input: [ { name: "a", dims: [ -1 , 2 , ] } , { name: "b" }, ]',
        'input [ { name: "a" dims: [-1,2] } ] input [ { name: "b" } ]',
        'input < name: "a"; dims: -1; dims: 2; >; input { name: "b" },',
        "input { name: 'a' dims: - 1 dims: 2 } input { name : \"\" 'b' }",
        '\ufeff# first\r\ninput { name: "a" dims: -1 # two\n dims: 2 },, input { name: "b" }',
    ],
)
def test_lists_separators_and_brackets_are_read_in_every_form(text: str) -> None:
    message = parse(text)
    assert [entry.name for entry in message.input] == ["a", "b"]
    assert list(message.input[0].dims) == [-1, 2]


def test_parameters_are_read_with_and_without_commas_and_colons() -> None:
    message = parse(
        'parameters { key: "a", value: { string_value: "1" } }\n'
        'parameters: { key: "b" value { string_value: "${filled_later}" } },\n'
    )
    assert {key: entry.string_value for key, entry in message.parameters.items()} == {"a": "1", "b": "${filled_later}"}


def test_a_scalar_and_an_empty_list_stand_for_repeated_fields() -> None:
    message = parse("dynamic_batching { preferred_batch_size: 16 } input { reshape: { shape: [ ] } }")
    assert list(message.dynamic_batching.preferred_batch_size) == [16]
    assert message.input[0].HasField("reshape")


def test_an_empty_message_is_present() -> None:
    assert parse("dynamic_batching { }").HasField("dynamic_batching")


def test_repairs_leave_strings_and_comments_alone() -> None:
    text = "name: \"[1,, 2,] TRUE - 1\" # TRUE ,, ]\nplatform: 'it\\'s ,]'"
    message = parse(text)
    assert (message.name, message.platform) == ("[1,, 2,] TRUE - 1", "it's ,]")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: 'a'\nmax_batchsize: 3", "2:1: field 'max_batchsize': ModelConfig has no field named "
         "'max_batchsize', did"
         " you mean 'max_batch_size'?"),
        ("input {\n  data_type: FP32\n}", "2:14: field 'input.data_type': DataType has no value 'FP32', did you mean "
         "'TYPE_FP32'?"),
        ("instance_group [ { kind: KIND_CPUS } ]", "field 'instance_group.kind': Kind has no value 'KIND_CPUS', "
         "did you "
         "mean 'KIND_CPU'?"),
        ("max_batch_size: ${triton_max_batch_size}", "1:17: field 'max_batch_size': the placeholder "
         "${triton_max_batch_size} is not filled in"),
        ("max_batch_size: 1.5", "1:17: field 'max_batch_size': Couldn't parse integer: 1.5"),
        ("max_batch_size: 1 max_batch_size: 2", "field 'max_batch_size'"),
        ("dynamic_batching {} sequence_batching {}", "oneof \"scheduling_choice\""),
        ("name 'a'", "field 'name': Expected \":\""),
        ("input { dims: [1", "field 'input.dims'"),
        ("input { data_type: 99 }", "input[0].data_type: invalid value 99 for enum DataType"),
    ],
)  # fmt: skip
def test_an_error_names_place_field_and_remedy(text: str, expected: str) -> None:
    assert expected in complaint(text)


def test_a_name_close_to_nothing_lists_the_valid_ones() -> None:
    assert "valid are: REJECT, DELAY" in complaint("dynamic_batching{default_queue_policy{timeout_action:X}}")


@given(st.text())
def test_arbitrary_text_never_raises_anything_else(text: str) -> None:
    with contextlib.suppress(ServingError):
        parse(text)


_PIECES = ["input", "name", "dims", "max_batch_size", "parameters", "kind", "{", "}", "[", "]", "<", ">", ":", ",", ";"]
_PIECES += ["-", "1", "1.5", '"x"', '"', "'", "\\", "#", "\n", " ", "${a}", "$", "true", "TYPE_FP32", "\x00", "\ufeff"]


@given(st.lists(st.sampled_from(_PIECES), max_size=30).map("".join))
def test_text_close_to_the_format_never_raises_anything_else(text: str) -> None:
    with contextlib.suppress(ServingError):
        parse(text)
