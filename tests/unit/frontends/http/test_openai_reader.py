"""From what models of TensorRT-LLM's shape write, in one piece or in several, to the texts that clients get."""

from __future__ import annotations

from typing import Any

import pytest

from trireme.config.model_config import TensorConfig
from trireme.core.elements import encode_bytes
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.frontends.http.endpoints.openai.prompts import chat_inputs, completion_inputs
from trireme.frontends.http.endpoints.openai.responses import ResponseReader
from trireme.protocol.openai.fields import Fields
from trireme.protocol.openai.pieces import Piece
from trireme.protocol.openai.requests import read_chat, read_completion
from trireme.protocol.openai.usage import Usage
from trireme.server.text_models.forms import GenerationForm

PLAIN = {"text_input": "BYTES", "max_tokens": "INT32", "stop_words": "BYTES"}


def form(inputs: dict[str, str]) -> GenerationForm:
    declared = {name: TensorConfig(name, kind, (-1,)) for name, kind in inputs.items()}
    made = {"text_output": TensorConfig("text_output", "BYTES", (-1,))}
    return GenerationForm("python", True, True, "text_input", "text_output", declared, made)


def told(pieces: list[str], inputs: dict[str, str] = PLAIN, **members: Any) -> tuple[list[Piece], Usage, bool]:
    """What becomes of the pieces of one choice, with what is counted, and whether the rest is not waited for."""
    fields = Fields({"model": "m", **members})
    made = form(inputs)
    if "messages" in members:
        (entry,) = chat_inputs(made, read_chat(fields))
    else:
        (entry,) = completion_inputs(made, read_completion(fields))
    usage = Usage()
    reader = ResponseReader(made, entry, usage)
    found = []
    for piece in pieces:
        tensor = Tensor("text_output", "BYTES", (1,), encode_bytes([piece]))
        found += reader.read(InferenceResponse([tensor]))
    return found + reader.close(), usage, reader.is_stopped


def texts(pieces: list[Piece]) -> list[str]:
    return [piece.text for piece in pieces]


@pytest.mark.parametrize("pieces", [["Hi there, you"], ["H", "i", " there,", " you"], ["Hi th", "ere, you"]])
def test_a_prompt_that_comes_first_is_left_out_and_not_counted(pieces: list[str]) -> None:
    found, usage, _ = told(pieces, prompt="Hi there")
    assert "".join(texts(found)) == ", you"
    assert (usage.prompt_tokens, usage.completion_tokens) == (2, 2)


@pytest.mark.parametrize("pieces", [["Hi thereHi there"], ["Hi there", "Hi there"]])
def test_an_echo_comes_once(pieces: list[str]) -> None:
    assert "".join(texts(told(pieces, prompt="Hi there", echo=True)[0])) == "Hi thereHi there"
    assert "".join(texts(told(pieces, prompt="Hi there")[0])) == "Hi there"
    assert "".join(texts(told(["yes"], prompt="Hi there", echo=True)[0])) == "Hi thereyes"


def test_a_text_that_differs_goes_out_at_once() -> None:
    assert texts(told(["Hi", " then", "!"], prompt="Hi there")[0]) == ["", "Hi then", "!", ""]
    assert texts(told(["Ho", " there"], prompt="Hi there")[0]) == ["Ho", " there", ""]


def test_a_text_that_ends_within_the_prompt_is_told() -> None:
    found, usage, _ = told(["Hi", " th"], prompt="Hi there")
    assert texts(found) == ["", "", "Hi th"]
    assert usage.completion_tokens == 2


def test_a_chat_is_left_out_as_it_was_written_out() -> None:
    messages = [{"role": "user", "content": "Hi"}]
    assert "".join(texts(told(["User: Hi\nAssistant: Ho"], messages=messages)[0])) == " Ho"


@pytest.mark.parametrize("more", [{}, {"max_tokens": "INT32", "exclude_input_in_output": "BOOL"}])
def test_models_that_are_not_told_how_much_to_write_or_can_be_asked_keep_their_words(more: dict[str, str]) -> None:
    assert texts(told(["Hi there"], {"text_input": "BYTES", **more}, prompt="Hi")[0]) == ["Hi there", ""]


@pytest.mark.parametrize("pieces", [["one two. END"], ["one", " two", ". E", "ND"], ["one two. END never told"]])
def test_a_text_ends_before_a_stop_word_that_the_model_leaves_in(pieces: list[str]) -> None:
    found, usage, is_stopped = told(pieces, prompt="x", stop=["END", "FIN"])
    assert "".join(texts(found)) == "one two. "
    assert [piece.finish_reason for piece in found if piece.finish_reason] == ["stop"]
    assert (usage.completion_tokens, is_stopped) == (3, True)


def test_the_beginning_of_a_stop_word_waits_for_the_next_piece() -> None:
    assert texts(told(["one E", "N", "d", " FIN"], prompt="x", stop=["END", "FIN"])[0])[:4] == ["one ", "", "ENd", " "]


@pytest.mark.parametrize("pieces", [["one END"], ["one E", "ND"], ["one E", "ND two"], ["one END two"]])
def test_a_stop_text_is_kept_where_the_client_wants_it(pieces: list[str]) -> None:
    wanted: dict[str, Any] = {"stop": ["END!", "END"], "include_stop_str_in_output": True}
    for inputs in (PLAIN, {"text_input": "BYTES"}):
        found, _, is_stopped = told(pieces, inputs, prompt="x", **wanted)
        assert ("".join(texts(found)), is_stopped) == ("one END", True)


def test_a_stop_text_within_the_prompt_ends_nothing() -> None:
    found, _, is_stopped = told(["one two", " three"], prompt="one two", stop="two")
    assert ("".join(texts(found)), is_stopped) == (" three", False)


def test_a_model_with_a_stop_of_its_own_is_let_be() -> None:
    assert texts(told(["one END"], {**PLAIN, "stop": "BYTES"}, prompt="x", stop="END")[0]) == ["one END", ""]


@pytest.mark.parametrize("pieces", [["one K\ufffd"], ["one", " K", "\ufffd"], ["one", " K"]])
def test_half_a_character_at_the_end_is_told_neither_at_once_nor_in_a_stream(pieces: list[str]) -> None:
    assert "".join(texts(told(pieces, prompt="x")[0])) == "one K"


def test_half_a_character_before_a_stop_text_or_of_another_kind_of_model_stays() -> None:
    assert "".join(texts(told(["one\ufffd", " END"], prompt="x", stop=" END")[0])) == "one\ufffd"
    assert "".join(texts(told(["one\ufffd"], {"text_input": "BYTES"}, prompt="x")[0])) == "one\ufffd"


def ended(counted: int | None, reason: str = "", **members: Any) -> list[str]:
    """The reasons for which a text of three words ends, of a model that may count its tokens and give a reason."""
    base = form(PLAIN)
    outputs = {name: TensorConfig(name, "BYTES", (1,)) for name in ("text_output", "usage", "finish_reason")}
    if counted is None:
        del outputs["usage"]
    made = GenerationForm("python", True, True, "text_input", "text_output", base.inputs, outputs)
    (entry,) = completion_inputs(made, read_completion(Fields({"model": "m", "prompt": "x", **members})))
    reader = ResponseReader(made, entry, Usage())
    said = {"text_output": "one two three", "finish_reason": reason}
    if counted is not None:
        said["usage"] = f'{{"prompt_tokens": 1, "completion_tokens": {counted}}}'
    tensors = [Tensor(name, "BYTES", (1,), encode_bytes([text])) for name, text in said.items()]
    found = reader.read(InferenceResponse(tensors)) + reader.close()
    return [piece.finish_reason for piece in found if piece.finish_reason]


@pytest.mark.parametrize(
    ("counted", "members", "expected"),
    [
        (3, {"max_tokens": 3}, "length"),
        (2, {"max_tokens": 3}, "stop"),
        (3, {}, "stop"),
        (255, {}, "stop"),
        (256, {}, "length"),  # which is what a model that has to be told is sent
        (256, {"max_tokens": 300}, "stop"),
        (None, {"max_tokens": 3}, "stop"),
        (3, {"max_tokens": 3, "reason": "stop"}, "stop"),
        (3, {"max_tokens": 3, "stop": "three"}, "stop"),
    ],
)
def test_a_text_with_all_tokens_that_it_might_have_was_cut(
    counted: int | None, members: dict[str, Any], expected: str
) -> None:
    assert ended(counted, **members) == [expected]


def test_a_model_that_need_not_be_told_how_much_is_not_cut_at_a_number_that_it_was_not_sent() -> None:
    declared = {
        "text_input": TensorConfig("text_input", "BYTES", (-1,)),
        "max_tokens": TensorConfig("max_tokens", "INT32", (-1,), is_optional=True),
    }
    made = {name: TensorConfig(name, "BYTES", (1,)) for name in ("text_output", "usage")}
    shape = GenerationForm("python", True, True, "text_input", "text_output", declared, made)
    (entry,) = completion_inputs(shape, read_completion(Fields({"model": "m", "prompt": "x"})))
    assert (entry.max_tokens, "max_tokens" in entry.inputs) == (None, False)
