"""From what a client wants to be written to the requests that a model of any kind can follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trireme.core.datatype import Parameter
from trireme.core.tensor import Tensor
from trireme.frontends.http.endpoints.openai.images import images_of
from trireme.frontends.http.endpoints.openai.option_inputs import OptionInputs
from trireme.frontends.http.endpoints.openai.tensors import input_tensor, json_text
from trireme.protocol.openai.errors import FieldError
from trireme.protocol.openai.options import Options
from trireme.protocol.openai.requests import ChatRequest, CompletionRequest, Message, Prompt, text_of
from trireme.protocol.openai.stop_texts import MAX_CHARACTERS
from trireme.protocol.openai.usage import count_words
from trireme.server.text_models.forms import FLAGS, IMAGES_INPUT, GenerationForm

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
    repeated: str = ""
    """The prompt, where the model may tell it again before what it writes."""
    stops: tuple[str, ...] = ()
    """What ends the text, where the model is not told of it or leaves it in."""
    are_stops_told: bool = False
    """Whether the one that ends the text belongs to it."""
    max_tokens: int | None = None
    """Of each choice, where the client says so or the model has to be told."""
    prompt_count: int | None = None
    """How many tokens the prompt counts, where the model does not count itself; 0 where another request counts it."""


def completion_inputs(form: GenerationForm, request: CompletionRequest) -> list[ModelInput]:
    """The requests that answer a completion, in the order of their choices."""
    found = []
    options = OptionInputs(form, request)
    for position, prompt in enumerate(request.prompts):
        inputs = {_prompt_name(form, prompt): _prompt_tensor(form, prompt)}
        text = prompt if isinstance(prompt, str) else ""
        found += _choices(form, request, inputs, text, options, position * request.choice_count)
        _count_here(form, found[-1 if options.are_for_all_choices else -request.choice_count :], prompt)
    if request.has_echo and (form.tells_by_flags or not form.takes_options) and form.backend != "transformers":
        for position, entry in enumerate(found):
            prompt = request.prompts[position // request.choice_count]
            entry.echoed = prompt if isinstance(prompt, str) else ""
    return found


def chat_inputs(form: GenerationForm, request: ChatRequest) -> list[ModelInput]:
    """The requests that answer a chat, in the order of their choices."""
    text = ""
    if form.takes_messages:
        inputs = {"messages": input_tensor(form.inputs["messages"], [messages_text(request.messages)], form.has_batch)}
    else:
        text = written_out(request.messages)
        inputs = {form.prompt_input: _prompt_tensor(form, text)}
        images = images_of(request.messages, form.takes_images)
        if images:
            inputs[IMAGES_INPUT] = input_tensor(form.inputs[IMAGES_INPUT], images, form.has_batch)
    found = _choices(form, request, inputs, text, OptionInputs(form, request), 0)
    _count_here(form, found, "\n".join(map(text_of, request.messages)))
    return found


def messages_text(messages: list[Message]) -> bytes:
    """The messages as JSON."""
    return json_text("messages", messages)


def written_out(messages: list[Message]) -> str:
    """A chat as one text, for models that know no chats."""
    lines = []
    for message in messages:
        role = str(message["role"])
        lines.append(f"{_NAMES_OF_ROLES.get(role, role.capitalize())}: {text_of(message)}")
    return "\n".join([*lines, "Assistant:"])


def _count_here(form: GenerationForm, entries: list[ModelInput], prompt: Prompt) -> None:
    """Lets the first of a prompt's requests stand for the prompt, where the model does not count."""
    if "usage" in form.outputs:
        return
    count = count_words(prompt) if isinstance(prompt, str) else len(prompt)
    for position, entry in enumerate(entries):
        entry.prompt_count = 0 if position else count


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
    form: GenerationForm,
    request: CompletionRequest | ChatRequest,
    prompt: dict[str, Tensor],
    prompt_text: str,
    options: OptionInputs,
    first_index: int,
) -> list[ModelInput]:
    outputs = _outputs(form, isinstance(request, ChatRequest), request.options)
    count = 1 if options.are_for_all_choices else request.choice_count
    stops = () if _leaves_stops_out(form) else tuple(request.options.get("stop", ()))
    if sum(map(len, stops)) > MAX_CHARACTERS:
        raise FieldError("stop", f"The texts in 'stop' have more than {MAX_CHARACTERS} characters together.")
    repeated = prompt_text if form.may_repeat_prompt else ""
    found = []
    for index in range(count):
        inputs, parameters = options.of_choice(index)
        own_count = request.choice_count // count
        place = first_index + index
        made = ModelInput({**prompt, **inputs}, dict(parameters), outputs, place, own_count)
        made.repeated, made.stops, made.max_tokens = repeated, stops, options.max_tokens
        made.are_stops_told = bool(request.options.get("include_stop_str_in_output"))
        found.append(made)
    return found


def _leaves_stops_out(form: GenerationForm) -> bool:
    """Whether the model sees to stop texts itself. By `stop_words`, as those of TensorRT-LLM have it, it ends its text
    with one, and only with one that it has spelt with the tokens that it was given."""
    return form.takes_options or "stop" in form.inputs


def _outputs(form: GenerationForm, is_chat: bool, options: Options) -> tuple[str, ...]:
    """What is asked for: of a model with one output, that."""
    text = "delta" if is_chat and form.takes_messages and "delta" in form.outputs else form.text_output
    wanted = [text, "index", "finish_reason", "usage"]
    wanted += [FLAGS[flag] for flag in form.flags if FLAGS[flag] not in wanted]
    wanted += [name for name in ("logprobs", "prompt_logprobs") if name in options]
    return tuple(name for name in wanted if name in form.outputs)
