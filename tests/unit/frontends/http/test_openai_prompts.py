"""From requests of OpenAI's API to those of a model: options are encoded once, however many prompts there are."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import orjson
import pytest

from trireme.config.model_config import TensorConfig
from trireme.core.elements import decode_bytes
from trireme.frontends.http.endpoints.openai.generation import stream_parameters
from trireme.frontends.http.endpoints.openai.prompts import chat_inputs, completion_inputs
from trireme.protocol.openai.errors import FieldError
from trireme.protocol.openai.fields import Fields
from trireme.protocol.openai.requests import read_chat, read_completion
from trireme.server.text_models.forms import GenerationForm


def form(*outputs: str, inputs: tuple[str, ...] = ("text_input", "sampling_parameters")) -> GenerationForm:
    given = {name: TensorConfig(name, "BYTES", (1,)) for name in inputs}
    made = {name: TensorConfig(name, "BYTES", (-1,)) for name in ("text_output", *outputs)}
    return GenerationForm("python", True, False, "text_input", "text_output", given, made)


def completion(**members: Any) -> Any:
    return read_completion(Fields({"model": "m", **members}))


def test_options_are_encoded_once_for_all_prompts() -> None:
    request = completion(prompt=["a", "b", "c"], n=2, echo=True, guided_regex="x" * 1000)
    found = completion_inputs(form("index"), request)
    tensors = [entry.inputs["sampling_parameters"] for entry in found]
    assert [tensor is tensors[0] for tensor in tensors] == [True] * 3
    (text,) = decode_bytes(tensors[0].data)
    assert orjson.loads(text) == {"guided_regex": "x" * 1000, "n": 2, "echo": True}
    assert [(entry.first_index, entry.choice_count) for entry in found] == [(0, 2), (2, 2), (4, 2)]
    assert [decode_bytes(entry.inputs["text_input"].data) for entry in found] == [[b"a"], [b"b"], [b"c"]]


def test_choices_of_models_that_make_one_differ_in_the_seed_alone() -> None:
    found = completion_inputs(form(), completion(prompt=["a", "b"], n=2, seed=7))
    texts = [decode_bytes(entry.inputs["sampling_parameters"].data)[0] for entry in found]
    assert [orjson.loads(text) for text in texts] == [{"seed": 7}, {"seed": 8}] * 2
    assert found[0].inputs["sampling_parameters"] is found[2].inputs["sampling_parameters"]
    assert [entry.first_index for entry in found] == [0, 1, 2, 3]


def test_options_of_plain_models_are_shared_as_inputs() -> None:
    found = completion_inputs(form(inputs=("text_input", "stop")), completion(prompt=["a", "b"], stop="end", top_k=3))
    assert found[0].inputs["stop"] is found[1].inputs["stop"]
    assert [entry.parameters for entry in found] == [{"top_k": 3}] * 2


def test_texts_that_are_not_unicode_are_passed_on() -> None:
    found = completion_inputs(form(), completion(prompt="a", stop="\udc80"))
    assert decode_bytes(found[0].inputs["sampling_parameters"].data) == [b'{"stop":["\\udc80"]}']


def test_deeply_nested_messages_are_refused() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    chat = read_chat(Fields({"model": "m", "messages": [{"role": "user", "content": "x", "tool_calls": deep}]}))
    with pytest.raises(FieldError, match="'messages' is nested too deeply"):
        chat_inputs(form(inputs=("text_input", "messages")), chat)


def seeing(*parts: Any, inputs: tuple[str, ...] = ("text_input", "images")) -> Any:
    messages = [{"role": "user", "content": [{"type": "text", "text": "what is this"}, *parts]}]
    request = read_chat(Fields({"model": "m", "messages": messages}))
    return chat_inputs(form(inputs=inputs), request)[0]


def test_images_of_a_chat_go_beside_the_prompt_of_a_model_that_takes_them() -> None:
    found = seeing({"type": "image_url", "image_url": {"url": "data:a"}}, {"type": "image_url", "image_url": "data:b"})
    assert decode_bytes(found.inputs["text_input"].data) == [b"User: what is this\nAssistant:"]
    assert decode_bytes(found.inputs["images"].data) == [b"data:a", b"data:b"]
    assert found.prompt_count == 3


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"type": "input_audio"}, r"takes texts and images, and 'messages\[0\].content\[1\]' is neither"),
        ({"type": "image_url"}, "has to be a data: address"),
        ({"type": "image_url", "image_url": {"url": 7}}, "has to be a data: address"),
        ({"type": "image_url", "image_url": {"url": " HTTPS://a"}}, "the server fetches nothing"),
    ],
)
def test_a_part_that_is_no_image_is_refused_by_its_place(part: Any, words: str) -> None:
    with pytest.raises(FieldError, match=words):
        seeing(part)


def test_a_model_of_texts_is_sent_no_images() -> None:
    with pytest.raises(FieldError, match="takes texts only"):
        seeing({"type": "image_url", "image_url": {"url": "data:a"}}, inputs=("text_input",))


FLAGS = ("return_finish_reason", "return_num_input_tokens", "return_num_output_tokens")
TOLD = ("finish_reason", "num_input_tokens", "num_output_tokens")


def flagged(*inputs: str, outputs: tuple[str, ...] = TOLD) -> GenerationForm:
    """A model that takes truth values beside its prompt."""
    made = form(*outputs, inputs=("text_input", "sampling_parameters"))
    flags = {name: TensorConfig(name, "BOOL", (1,)) for name in ("exclude_input_in_output", *inputs)}
    return GenerationForm("vllm", True, False, "text_input", "text_output", {**made.inputs, **flags}, made.outputs)


def test_models_that_would_begin_with_the_prompt_are_told_to_leave_it_out() -> None:
    for request in (completion(prompt="a"), completion(prompt="a", echo=True)):
        (found,) = completion_inputs(flagged(*FLAGS), request)
        assert bytes(found.inputs["exclude_input_in_output"].data) == b"\1"
        assert decode_bytes(found.inputs["sampling_parameters"].data) == [b"{}"]
        assert found.echoed == ("a" if request.has_echo else "")


def test_models_with_flags_are_asked_for_the_end_and_the_tokens() -> None:
    (found,) = completion_inputs(flagged(*FLAGS), completion(prompt="a"))
    assert [bytes(found.inputs[flag].data) for flag in FLAGS] == [b"\1"] * 3
    assert found.outputs == ("text_output", *TOLD)
    with pytest.raises(FieldError, match="'logprobs' is not supported by this model"):
        completion_inputs(flagged(*FLAGS), completion(prompt="a", logprobs=1))


def test_models_that_tell_by_name_are_asked_for_nothing_else() -> None:
    (found,) = completion_inputs(flagged(*FLAGS, outputs=(*TOLD, "index", "usage")), completion(prompt="a"))
    assert found.inputs.keys() == {"text_input", "sampling_parameters"}
    assert found.outputs == ("text_output", "index", "finish_reason", "usage")


DRAWING = {"max_tokens": "INT32", "temperature": "FP32", "top_k": "INT32", "top_p": "FP32", "random_seed": "UINT64"}


def drawing(kinds: dict[str, str] = DRAWING) -> GenerationForm:
    """A model with TensorRT-LLM's inputs."""
    made = form()
    inputs = {name: TensorConfig(name, kind, (1,)) for name, kind in {"text_input": "BYTES", **kinds}.items()}
    return GenerationForm("python", False, True, "text_input", "text_output", inputs, made.outputs)


def given(found: Any, name: str, code: str) -> list[Any]:
    """The only value of an input in each request, None where a request has none."""
    tensors = [entry.inputs.get(name) for entry in found]
    return [tensor and struct.unpack(f"<{code}", tensor.data)[0] for tensor in tensors]


def test_a_temperature_alone_brings_a_top_p_and_a_seed_for_each_choice() -> None:
    found = completion_inputs(drawing(), completion(prompt=["a", "a"], n=3, temperature=0.5))
    assert given(found, "top_p", "f") == [1.0] * 6
    assert given(found, "temperature", "f") == [0.5] * 6
    assert len(set(given(found, "random_seed", "Q"))) == 6
    assert found[0].inputs["temperature"] is found[5].inputs["temperature"]


@pytest.mark.parametrize("kind", ["INT32", "UINT32", "INT64"])
def test_a_seed_by_chance_has_room_in_its_input(kind: str) -> None:
    made = drawing({**DRAWING, "random_seed": kind})
    found = completion_inputs(made, completion(prompt="a", n=128, temperature=0.5))
    assert len({bytes(entry.inputs["random_seed"].data) for entry in found}) > 100


@pytest.mark.parametrize(
    ("options", "top_p", "has_seed"),
    [
        ({}, None, False),
        ({"temperature": 0}, None, False),
        ({"temperature": 0, "top_p": 0.5}, 0.5, False),
        ({"temperature": 0.5, "top_p": 0.25}, 0.25, True),
        ({"temperature": 0.5, "top_k": 3}, None, True),
        ({"top_k": 3}, None, True),
    ],
)
def test_what_the_client_chooses_is_left_as_it_is(options: dict[str, Any], top_p: Any, has_seed: bool) -> None:
    found = completion_inputs(drawing(), completion(prompt="a", **options))
    assert given(found, "top_p", "f") == [top_p]
    assert ("random_seed" in found[0].inputs) == has_seed


def test_a_seed_of_the_client_stays() -> None:
    found = completion_inputs(drawing(), completion(prompt="a", n=2, temperature=0.5, seed=7))
    assert given(found, "random_seed", "Q") == [7, 8]
    assert given(found, "top_p", "f") == [1.0, 1.0]


@pytest.mark.parametrize(
    ("kind", "code", "seed", "sent"),
    [
        ("UINT64", "Q", -1, [2**64 - 1, 0]),
        ("UINT64", "Q", 2**64 - 1, [2**64 - 1, 2**63]),
        ("INT64", "q", 2**64 - 1, [-1, -(2**63)]),
        ("INT32", "i", 2**31 - 1, [2**31 - 1, -(2**31)]),
        ("UINT32", "I", -5, [2**32 - 5, 2**32 - 4]),
    ],
)
def test_every_seed_fits_into_the_input(kind: str, code: str, seed: int, sent: list[int]) -> None:
    made = drawing({**DRAWING, "random_seed": kind})
    found = completion_inputs(made, completion(prompt="a", n=2, temperature=0.5, seed=seed))
    assert given(found, "random_seed", code) == sent


def test_all_tokens_are_what_such_a_model_draws_from_by_itself() -> None:
    (found,) = completion_inputs(drawing(), completion(prompt="a", top_k=-1, temperature=1.0))
    assert "top_k" not in found.inputs
    assert given([found], "top_p", "f") == [1.0]
    (greedy,) = completion_inputs(drawing(), completion(prompt="a", top_k=-1))
    assert "top_p" not in greedy.inputs


@pytest.mark.parametrize(
    ("name", "neutral", "value"),
    [
        ("min_p", 0, 0.1),
        ("ignore_eos", False, True),
        ("frequency_penalty", 0.0, 0.5),
        ("repetition_penalty", 1, 1.1),
        ("min_tokens", 0, 2),
        ("bad_words", [], ["sea"]),
        ("skip_special_tokens", True, False),
        ("use_beam_search", False, True),
        ("num_beams", 1, 2),
        ("stop_token_ids", [], [3]),
    ],
)
def test_an_option_that_such_a_model_cannot_follow_is_refused_unless_it_changes_nothing(
    name: str, neutral: Any, value: Any
) -> None:
    (found,) = completion_inputs(drawing(), completion(prompt="a", **{name: neutral}))
    assert found.inputs.keys() == {"text_input", "max_tokens"}
    assert found.parameters == {}
    with pytest.raises(FieldError, match=f"'{name}' is not supported by this model") as refused:
        completion_inputs(drawing(), completion(prompt="a", **{name: value}))
    assert refused.value.param == name


def test_an_end_that_is_to_be_ignored_is_no_token_where_the_input_can_say_so() -> None:
    (found,) = completion_inputs(drawing({**DRAWING, "end_id": "INT32"}), completion(prompt="a", ignore_eos=True))
    assert given([found], "end_id", "i") == [-1]
    with pytest.raises(FieldError, match="'ignore_eos'"):
        completion_inputs(drawing({**DRAWING, "end_id": "UINT32"}), completion(prompt="a", ignore_eos=True))


def test_words_that_would_be_parted_at_their_commas_are_not() -> None:
    made = drawing({**DRAWING, "stop_words": "BYTES", "bad_words": "BYTES"})
    (found,) = completion_inputs(made, completion(prompt="a", stop=["a, b", 'say "c"', "d"], bad_words=["e, f"]))
    assert decode_bytes(found.inputs["stop_words"].data) == [b"d"]
    assert found.stops == ("a, b", 'say "c"', "d")  # looked for here
    assert decode_bytes(found.inputs["bad_words"].data) == [b"e, f", b"e, f"]
    (found,) = completion_inputs(made, completion(prompt="a", stop="a, b", bad_words=["e", "f, g"]))
    assert "stop_words" not in found.inputs
    assert decode_bytes(found.inputs["bad_words"].data) == [b"e", b"f, g"]


def test_a_number_that_the_input_cannot_hold_is_told_by_its_field() -> None:
    with pytest.raises(FieldError, match="'max_tokens' is 4294967296, which the model's input 'max_tokens'") as refused:
        completion_inputs(drawing(), completion(prompt="a", max_tokens=2**32))
    assert (refused.value.param, refused.value.code) == ("max_tokens", "invalid_value")


def test_models_that_can_count_tokens_are_asked_to() -> None:
    flags = {"return_num_input_tokens": "BOOL", "return_num_output_tokens": "BOOL"}
    made = drawing({**DRAWING, **flags})
    (found,) = completion_inputs(made, completion(prompt="a"))
    assert found.inputs.keys() == {"text_input", "max_tokens"}  # it has no outputs for them
    counts = {name: TensorConfig(name, "INT32", (1,)) for name in ("num_input_tokens", "num_output_tokens")}
    counting = replace(made, outputs={**made.outputs, **counts})
    (found,) = completion_inputs(counting, completion(prompt="a"))
    assert found.inputs.keys() == {"text_input", "max_tokens", *flags}
    assert set(found.outputs) == {"text_output", *counts}


def test_steps_of_an_ensemble_hear_which_stream_it_is() -> None:
    ensemble = replace(drawing(), is_ensemble=True)
    streamed = completion(prompt="a", stream=True)
    assert stream_parameters(ensemble, streamed, 3, "cmpl-1") == {"stream_id": "cmpl-1-3"}
    assert stream_parameters(ensemble, completion(prompt="a"), 0, "cmpl-1") == {}
    assert stream_parameters(drawing(), streamed, 0, "cmpl-1") == {}
    assert stream_parameters(replace(form(), is_ensemble=True), streamed, 0, "cmpl-1") == {}


def transformers_model() -> GenerationForm:
    return replace(form(inputs=("text_input",)), backend="transformers")


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({"top_k": -1, "temperature": 0.5}, {"temperature": 0.5, "top_k": 0}),
        ({"top_k": -1}, {}),
        ({"top_p": 0}, {"temperature": 0}),
        ({"seed": 2**64 - 1}, {"seed": -1}),
        ({"seed": -(2**63)}, {"seed": 1 - 2**63}),
        ({"frequency_penalty": 0, "presence_penalty": 0.0, "min_p": 0, "skip_special_tokens": True}, {}),
    ],
)
def test_options_of_transformers_are_told_in_its_words(options: dict[str, Any], sent: dict[str, Any]) -> None:
    (found,) = completion_inputs(transformers_model(), completion(prompt="a", **options))
    assert {name: value for name, value in found.parameters.items() if name != "stream"} == sent


@pytest.mark.parametrize("options", [{"min_p": 0.1}, {"frequency_penalty": 1}, {"ignore_eos": True}])
def test_options_that_transformers_does_not_have_are_refused(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(FieldError, match=f"'{name}' is not supported by this model") as refused:
        completion_inputs(transformers_model(), completion(prompt="a", **options))
    assert refused.value.param == name


def test_models_with_words_of_their_own_are_sent_what_the_client_says_alone() -> None:
    inputs = {"max_tokens": "INT32", "temperature": "FP32", "top_p": "FP32", "seed": "INT32"}
    (found,) = completion_inputs(drawing(inputs), completion(prompt="a", temperature=0.5))
    assert found.inputs.keys() == {"text_input", "max_tokens", "temperature"}
