"""From what a client wants to be written to the requests that a model of any kind can follow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from trireme.core.request import Parameter
from trireme.core.tensor import Tensor
from trireme.frontends.http.endpoints.openai.tensors import input_tensor
from trireme.protocol.openai.errors import FieldError
from trireme.protocol.openai.options import Options
from trireme.protocol.openai.requests import ChatRequest, CompletionRequest, Message, Prompt, text_of
from trireme.server.text_models.forms import OPTION_INPUTS, GenerationForm

_TRANSFORMERS_NAMES: Final = {
    "max_tokens": "max_new_tokens",
    "min_tokens": "min_new_tokens",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "repetition_penalty": "repetition_penalty",
    "seed": "seed",
}
_CONSTRAINTS: Final = ("tools", "response_format", "guided_json", "guided_regex", "guided_grammar", "guided_choice")
_NEEDING_A_LANGUAGE_MODEL: Final = (*_CONSTRAINTS, "logprobs", "prompt_logprobs", "logit_bias", "stop_token_ids")
"""Options that no model follows by chance: where it is not told of them, the request is refused."""
_USUAL_MAX_TOKENS: Final = 256
_NAMES_OF_ROLES: Final = {"developer": "System", "function": "Tool"}


@dataclass(slots=True)
class ModelInput:
    """One request of a model: the tensors and parameters of one prompt, or of one choice of it."""

    inputs: dict[str, Tensor]
    parameters: dict[str, Parameter]
    outputs: tuple[str, ...]
    first_index: int
    """The index of its first choice in the client's answer."""
    choice_count: int
    echoed: str = ""
    """What the server puts before the text, where the model does not do so itself."""


def completion_inputs(form: GenerationForm, request: CompletionRequest) -> list[ModelInput]:
    """The requests that answer a completion, in the order of their choices."""
    found = []
    for position, prompt in enumerate(request.prompts):
        inputs = {_prompt_name(form, prompt): _prompt_tensor(form, prompt)}
        found += _choices(form, request, inputs, position * request.choice_count)
    if request.has_echo and not form.takes_options and form.backend != "transformers":
        for position, entry in enumerate(found):
            prompt = request.prompts[position // request.choice_count]
            entry.echoed = prompt if isinstance(prompt, str) else ""
    return found


def chat_inputs(form: GenerationForm, request: ChatRequest) -> list[ModelInput]:
    """The requests that answer a chat, in the order of their choices."""
    if form.takes_messages:
        inputs = {"messages": input_tensor(form.inputs["messages"], [messages_text(request.messages)], form.has_batch)}
    else:
        inputs = {form.prompt_input: _prompt_tensor(form, written_out(request.messages))}
    return _choices(form, request, inputs, 0)


def messages_text(messages: list[Message]) -> bytes:
    """The messages as JSON."""
    try:
        return orjson.dumps(messages)
    except orjson.JSONEncodeError:  # texts that came in as bytes that are not UTF-8
        return json.dumps(messages).encode()


def written_out(messages: list[Message]) -> str:
    """A chat as one text, for models that know no chats."""
    lines = []
    for position, message in enumerate(messages):
        text = text_of(message)
        if text is None:
            where = f"messages[{position}].content"
            raise FieldError(where, "This model takes texts only.", "unsupported_content")
        role = str(message["role"])
        lines.append(f"{_NAMES_OF_ROLES.get(role, role.capitalize())}: {text}")
    return "\n".join([*lines, "Assistant:"])


def _prompt_name(form: GenerationForm, prompt: Prompt) -> str:
    if isinstance(prompt, str):
        return form.prompt_input
    if "input_ids" not in form.inputs:
        raise FieldError("prompt", "This model takes texts, not token ids.", "unsupported_content")
    return "input_ids"


def _prompt_tensor(form: GenerationForm, prompt: Prompt) -> Tensor:
    values = [prompt] if isinstance(prompt, str) else prompt
    return input_tensor(form.inputs[_prompt_name(form, prompt)], values, form.has_batch)


def _choices(
    form: GenerationForm, request: CompletionRequest | ChatRequest, prompt: dict[str, Tensor], first_index: int
) -> list[ModelInput]:
    count = request.choice_count
    if form.makes_choices or count == 1:
        return [_model_input(form, request, prompt, request.options, first_index, count)]
    found = []
    for index in range(count):
        options = request.options
        if "seed" in options:  # the same one would give the same text
            options = {**options, "seed": options["seed"] + index}
        found.append(_model_input(form, request, prompt, options, first_index + index, 1))
    return found


def _model_input(
    form: GenerationForm,
    request: CompletionRequest | ChatRequest,
    prompt: dict[str, Tensor],
    options: Options,
    first_index: int,
    count: int,
) -> ModelInput:
    is_chat = isinstance(request, ChatRequest)
    has_echo = isinstance(request, CompletionRequest) and request.has_echo
    inputs = dict(prompt)
    parameters: dict[str, Parameter] = {}
    if form.takes_options:
        given = dict(options, n=count) if count > 1 else dict(options)
        if has_echo:
            given["echo"] = True
        inputs["sampling_parameters"] = _tensor(form, "sampling_parameters", orjson.dumps(given))
    else:
        _refuse_constraints(form, options)
        _spread_options(form, options, inputs, parameters)
        if form.backend == "transformers":
            if has_echo:
                parameters["return_full_text"] = True
            if form.is_decoupled and not request.is_stream:
                parameters["stream"] = False
    if "stream" in form.inputs:
        inputs["stream"] = _tensor(form, "stream", request.is_stream)
    return ModelInput(inputs, parameters, _outputs(form, is_chat, "logprobs" in options), first_index, count)


def _refuse_constraints(form: GenerationForm, options: Options) -> None:
    for name in _NEEDING_A_LANGUAGE_MODEL:
        if (
            name in options
            and name not in form.inputs
            and not (name == "tools" and options.get("tool_choice") == "none")
        ):
            raise FieldError(name, f"'{name}' is not supported by this model.", "unsupported_parameter")


def _spread_options(
    form: GenerationForm, options: Options, inputs: dict[str, Tensor], parameters: dict[str, Parameter]
) -> None:
    """Gives each option as an input where the model has one for it, otherwise as a parameter of the request."""
    for name, value in options.items():
        entry = next((entry for entry in OPTION_INPUTS.get(name, (name,)) if entry in form.inputs), None)
        if entry is not None:
            inputs[entry] = _tensor(form, entry, value)
        elif form.backend != "transformers":
            parameters[name] = value if isinstance(value, (bool, int, float, str)) else orjson.dumps(value).decode()
        elif name in _TRANSFORMERS_NAMES:
            parameters[_TRANSFORMERS_NAMES[name]] = value
    for name in OPTION_INPUTS["max_tokens"]:
        if name in form.inputs and name not in inputs and not form.inputs[name].is_optional:
            inputs[name] = _tensor(form, name, _USUAL_MAX_TOKENS)


def _tensor(form: GenerationForm, name: str, value: Any) -> Tensor:
    if isinstance(value, Mapping):
        value = orjson.dumps(value)
    return input_tensor(form.inputs[name], value if isinstance(value, list) else [value], form.has_batch)


def _outputs(form: GenerationForm, is_chat: bool, has_logprobs: bool) -> tuple[str, ...]:
    """What is asked for: of a model with one output, that."""
    text = "delta" if is_chat and form.takes_messages and "delta" in form.outputs else form.text_output
    wanted = [text, "index", "finish_reason", "usage"] + (["logprobs"] if has_logprobs else [])
    return tuple(name for name in wanted if name in form.outputs)
