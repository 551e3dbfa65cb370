"""Options are read as what they have to be; others are refused by name, and none takes the server with it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from trireme.backends.llm.answer_form import MAX_TOOLS, AnswerForms
from trireme.backends.llm.llm_request import KNOWN, LlmRequest, read_llm_request, read_timeout_s
from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.backends.python.pb_utils.tensor import Tensor
from trireme.backends.served_engine.refusals import InvalidRequestError
from trireme.llm import Engine, SamplingError
from trireme.protocol.openai import options as openai_options
from trireme.protocol.openai.fields import Fields
from trireme.protocol.openai.requests import read_chat

Read = Callable[..., LlmRequest]
DEEP = "[" * 5_000 + "]" * 5_000
DEEPER = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prompt_logprobs": "x"}, "'prompt_logprobs' must be a whole number"),
        ({"best_of": 3, "n": 2}, "'best_of' must be 2, as 'n' is, without 'use_beam_search'"),
        ({"num_beams": "x"}, "'num_beams' must be a whole number"),
        ({"early_stopping": "soon"}, "'early_stopping' must be true, false or 'never'"),
        ({"skip_special_tokens": False}, "'skip_special_tokens' must be true"),
        ({"skip_special_tokens": "no"}, "'skip_special_tokens' must be true or false"),
        ({"add_special_tokens": True}, "'add_special_tokens' must be false for 'messages'"),
        ({"stop_token_ids": 5}, "'stop_token_ids' must be a list"),
        ({"stop_token_ids": ["x"]}, "'stop_token_ids' must be a whole number"),
        ({"logprobs": "x"}, "'logprobs' must be a whole number"),
        ({"logprobs": [1]}, "'logprobs' must be a whole number"),
        ({"logprobs": True, "top_logprobs": "x"}, "'top_logprobs' must be a whole number"),
        ({"logprobs": -1}, "'logprobs' must be between 0 and 20, found -1"),
        ({"logprobs": 21}, "'logprobs' must be between 0 and 20, found 21"),
        ({"logprobs": True, "top_logprobs": -1}, "'top_logprobs' must be between 0 and 20, found -1"),
        ({"chat_template_kwargs": 3}, "'chat_template_kwargs' must be an object"),
        ({"chat_template_kwargs": "[1]"}, "'chat_template_kwargs' must be an object"),
        ({"chat_template_kwargs": {"messages": []}}, "'chat_template_kwargs' must not have 'messages'"),
        ({"chat_template_kwargs": {"tools": []}}, "'chat_template_kwargs' must not have 'tools'"),
        (
            {"chat_template_kwargs": {"add_generation_prompt": True}},
            "'chat_template_kwargs' must not have 'add_generation_prompt'",
        ),
        ({"chat_template_kwargs": DEEP}, "'chat_template_kwargs' is nested too deeply"),
        ({"chat_template_kwargs": DEEPER}, "'chat_template_kwargs' is nested too deeply"),
        ({"add_generation_prompt": "x"}, "'add_generation_prompt' must be true or false"),
        ({"logit_bias": {"5": 10**400}}, "'logit_bias' must be an object of token ids with numbers"),
        ({"bad_words": ["x" * 300_000]}, "'bad_words' has 300000 characters"),
        ({"bad_words": [""] * 513}, "'bad_words' has 513 words; at most 512 are taken"),
        ({"tempreature": 1}, "there is no option 'tempreature'; did you mean 'temperature'?"),
        ({"timeot": 5}, "there is no option 'timeot'; did you mean 'timeout'?"),
        ({"return_finish_reson": True}, "did you mean 'return_finish_reason'?"),
        ({"samplng_parameters": {}}, "did you mean 'sampling_parameters'?"),
        ({"input_idz": [1]}, "did you mean 'input_ids'?"),
        ({"prompt": "x"}, "there is no option 'prompt'; did you mean the input 'text_input'?"),
        ({"inputs": "x"}, "there is no option 'inputs'; did you mean the input 'text_input'?"),
        ({"usage": True}, "there is no option 'usage'; known are: adapter, "),
        ({"text_input": "x"}, "there is no option 'text_input'; known are: adapter, "),
    ],
)
def test_wrong_options_are_refused_by_name(read: Read, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        read(**options)
    assert words in str(refused.value)


def test_nested_parameters_are_refused(engine: Engine) -> None:
    for name, text in product(("sampling_parameters", "messages"), (DEEP, DEEPER)):
        tensors = [_text("text_input", "x")] if name != "messages" else []
        request = InferenceRequest("", 0, [*tensors, _text(name, text)], ["text_output"], "scribe")
        with pytest.raises(InvalidRequestError, match=f"'{name}' is nested too deeply"):
            read_llm_request(request, engine.tokenizer, ["text_output"], AnswerForms(engine, None, None))


@pytest.mark.parametrize("options", [{"n": 64, "max_tokens": 10_000, "logprobs": 20}, {"n": 8, "logprobs": 20}])
def test_probabilities_are_counted_before_they_are_made(engine: Engine, options: dict[str, Any]) -> None:
    forms = AnswerForms(engine, None, None)
    forms.max_length = 32_768
    tensors = [_text("text_input", "x"), _text("sampling_parameters", json.dumps(options))]
    request = InferenceRequest("", 0, tensors, [], "scribe")
    with pytest.raises(InvalidRequestError, match=r"'n', 'max_tokens' and 'logprobs' \(or .*\) ask for"):
        read_llm_request(request, engine.tokenizer, [], forms)
    forms.max_length = 1024
    assert read_llm_request(request, engine.tokenizer, [], forms).params.logprobs == 20


@pytest.mark.parametrize("token", [-1, 2**31, 2**40])
def test_numbers_that_are_no_token_ids_are_refused(engine: Engine, token: int) -> None:
    tensors = [Tensor("input_ids", np.array([1, token], np.int64)), _text("sampling_parameters", "{}")]
    request = InferenceRequest("", 0, tensors, ["text_output"], "scribe", parameters={"operation": "detokenize"})
    with pytest.raises(InvalidRequestError, match=f"'input_ids' has {token}, which is no token id"):
        read_llm_request(request, engine.tokenizer, ["text_output"], AnswerForms(engine, None, None))


def test_millions_of_ids_are_looked_at_together(engine: Engine) -> None:
    request = InferenceRequest("", 0, [Tensor("input_ids", np.full(4_000_000, 5, np.int64))], [], "scribe")
    began_s = time.process_time()
    tokens = engine.encode(read_llm_request(request, engine.tokenizer, [], AnswerForms(engine, None, None)).tokens)
    assert time.process_time() - began_s < 4  # one by one they take three times as long at least
    assert tokens == [5] * 4_000_000
    assert {type(token) for token in tokens} == {int}


def test_special_tokens_around_a_text_can_be_left_out(engine: Engine, read: Read) -> None:
    assert read(text="Once", add_special_tokens=False).tokens == engine.tokenizer.encode("Once", add_special=False)
    assert read(text="Once").tokens == engine.tokenizer.encode("Once")


def test_usual_values_are_taken(read: Read) -> None:
    llm_request = read(skip_special_tokens=True, stop_token_ids="[3]", logprobs=2, top_k=10**30, prompt_logprobs=None)
    assert (llm_request.params.stop_ids, llm_request.params.logprobs, llm_request.params.top_k) == ((3,), 2, 0)
    assert read(bad_words="whale").params.bad_words == read(bad_words=["whale"]).params.bad_words != ()
    assert read(seed=2**63 - 1).params.seed == 2**63 - 1
    assert math.isclose(read(temperature="0.5").params.temperature, 0.5)


def test_every_option_of_openais_endpoint_is_known() -> None:
    tool = {"function": {"name": "x"}}
    texts = {"stop": "x", "logit_bias": {"1": 1}, "response_format": {"type": "json_object"}, "guided_json": {}}
    guides = {"guided_regex": "x", "guided_grammar": "x", "guided_choice": ["x"], "stop_token_ids": [1]}
    more = {"bad_words": ["x"], "tools": [tool], "tool_choice": "auto", "chat_template_kwargs": {}, "max_tokens": 1}
    flags = {"add_generation_prompt": True, "logprobs": True, "top_logprobs": 1}
    numbers = dict.fromkeys(openai_options._INTEGERS, 1) | dict.fromkeys(openai_options._NUMBERS, 1)
    given = {**texts, **guides, **more, **flags, **numbers, **dict.fromkeys(openai_options._FLAGS, True)}
    request = read_chat(Fields({"model": "m", "messages": [{"role": "user", "content": "x"}], **given}))
    assert given.keys() - {"n", "beam_width"} == request.options.keys()  # which goes on as num_beams
    assert openai_options.MAX_TOOLS == MAX_TOOLS
    assert given.keys() | {"n", "echo", "add_special_tokens"} <= KNOWN


def _text(name: str, text: str) -> Tensor:
    array = np.empty(1, np.object_)
    array[0] = text.encode()
    return Tensor(name, array)


@pytest.mark.parametrize(
    ("parameters", "options", "found_s"),
    [({}, {"timeout": 2_000_000}, 2.0), ({"timeout": 1_000_000}, {"timeout": 2_000_000}, 1.0), ({}, {}, None)],
)
def test_a_deadline_may_stand_among_the_other_options(
    engine: Engine, parameters: dict[str, int], options: dict[str, Any], found_s: float | None
) -> None:
    tensors = [_text("text_input", "x"), _text("sampling_parameters", json.dumps({**options, "max_tokens": 3}))]
    request = InferenceRequest("", 0, tensors, [], "scribe", parameters=parameters)
    assert read_timeout_s(request) == found_s
    assert read_llm_request(request, engine.tokenizer, [], AnswerForms(engine, None, None)).params.max_tokens == 3


@pytest.mark.parametrize("timeout", [-1, "soon", 10**400])
def test_a_deadline_that_is_none_is_refused_wherever_it_stands(timeout: object) -> None:
    tensors = [_text("text_input", "x"), _text("sampling_parameters", json.dumps({"timeout": timeout}))]
    with pytest.raises(InvalidRequestError, match="'timeout' must be"):
        read_timeout_s(InferenceRequest("", 0, tensors, [], "scribe"))


def test_options_are_an_object(read: Read, engine: Engine) -> None:
    request = InferenceRequest("", 0, [_text("text_input", "x"), _text("sampling_parameters", json.dumps([1]))], [], "")
    with pytest.raises(InvalidRequestError, match="'sampling_parameters' must be a JSON object"):
        read_llm_request(request, engine.tokenizer, [], AnswerForms(engine, None, None))


def test_an_output_comes_to_who_names_it(read: Read, fulfil: Any) -> None:
    llm_request = read(
        text="Once upon", names=("text_output", "logprobs", "prompt_logprobs", "cumulative_logprob"), max_tokens=2
    )
    (found,) = fulfil(llm_request)
    assert found.keys() == {"text_output", "logprobs", "prompt_logprobs", "cumulative_logprob"}
    assert len(json.loads(found["logprobs"][0])["content"]) == 2
    assert len(json.loads(found["prompt_logprobs"][0])) == len(llm_request.tokens)


@pytest.mark.parametrize(
    ("name", "told"),
    [("score", "'score' comes with a beam search alone"), ("delta", "'delta' comes with 'messages' alone")],
)
def test_an_output_that_the_request_cannot_have_is_refused(read: Read, name: str, told: str) -> None:
    with pytest.raises(InvalidRequestError, match=told):
        read(text="once", names=("text_output", name))


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("option", ["logprobs", "prompt_logprobs"])
def test_probabilities_that_an_option_asks_for_come_without_names(
    read: Read, fulfil: Any, option: str, count: int
) -> None:
    (found,) = fulfil(read(text="Once upon", names=(), max_tokens=2, **{option: count}))
    assert found.keys() == {"text_output", option}
    assert json.loads(found[option][0])


@pytest.mark.parametrize("name", ["echo", "stream"])
def test_a_flag_is_no_text(engine: Engine, name: str) -> None:
    parameters = {name: "false"}
    request = InferenceRequest("", 0, [_text("text_input", "once")], ["text_output"], "scribe", parameters=parameters)
    with pytest.raises(InvalidRequestError, match=f"'{name}' must be true or false, found 'false'"):
        read_llm_request(request, engine.tokenizer, [], AnswerForms(engine, None, None))


def test_no_limit_is_said_with_none_or_minus_one(read: Read) -> None:
    assert [read(text="once", top_k=value).params.top_k for value in (0, -1)] == [0, 0]
    with pytest.raises(SamplingError, match=r"'top_k' must be 0 \(no limit\) or more, found -100"):
        read(text="once", top_k=-100)
