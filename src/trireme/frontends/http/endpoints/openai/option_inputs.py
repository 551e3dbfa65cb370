"""The options of a generation as a model of any kind takes them: encoded once, and shared by all its prompts."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from trireme.core.datatype import Parameter
from trireme.core.tensor import Tensor
from trireme.frontends.http.endpoints.openai.tensors import input_tensor, json_text
from trireme.protocol.openai.errors import FieldError
from trireme.protocol.openai.options import TOOLS, Options, seed_of
from trireme.protocol.openai.requests import ChatRequest, CompletionRequest
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
_NEEDING_A_LANGUAGE_MODEL: Final = (
    *_CONSTRAINTS, "logprobs", "prompt_logprobs", "logit_bias", "stop_token_ids", "use_beam_search", "num_beams",
)  # fmt: skip
"""Options that no model follows by chance: where it is not told of them, the request is refused."""
_NEUTRAL: Final[Mapping[str, tuple[Any, ...]]] = {
    "use_beam_search": (False,),
    "num_beams": (1,),
    "temperature": (0, 1),
    "top_p": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
    "min_tokens": (0,),
    "repetition_penalty": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "ignore_eos": (False,),
    "skip_special_tokens": (True,),
    "bad_words": ([],),
    "stop_token_ids": ([],),
}
"""Options that change a text, and the values with which they do not."""
_USUAL_MAX_TOKENS: Final = 256
_SEED_BITS: Final = {"INT32": 31, "UINT32": 32, "INT64": 63, "UINT64": 64}
_NO_END: Final = -1
"""As the token that ends a text: TensorRT-LLM's word for none."""
_SEPARATORS: Final = (",", '"')
"""What parts a text of several words, as older releases of TensorRT-LLM take them, and what keeps one together."""

Encoded = tuple[Mapping[str, Tensor], Mapping[str, Parameter]]
"""Inputs and parameters; the tensors are shared, and never changed."""


class OptionInputs:
    """Of one request."""

    def __init__(self, form: GenerationForm, request: CompletionRequest | ChatRequest) -> None:
        self._form = form
        self._request = request
        self._encoded: dict[int, Encoded] = {}
        self.are_for_all_choices = form.makes_choices or request.choice_count == 1
        """Whether one request of the model answers with all choices of a prompt."""
        self.max_tokens: int | None = request.options.get("max_tokens")
        """Of each choice: as the client says, or the number that is sent where the model has to be given one."""
        if self.max_tokens is None and not form.takes_options and _wanted_limits(form):
            self.max_tokens = _USUAL_MAX_TOKENS
        self._seed_input = _drawn_seed_input(form, request.options)

    def of_choice(self, index: int) -> Encoded:
        """What each prompt's request for this choice brings beside the prompt; raises FieldError."""
        options = self._request.options
        number = index if "seed" in options else 0  # the same seed would give the same text
        if number not in self._encoded:
            own = {**options, "seed": seed_of(options, number)} if number else options
            self._encoded[number] = self._encode(own)
        if self._seed_input is None:
            return self._encoded[number]
        inputs, parameters = self._encoded[number]
        return {**inputs, self._seed_input: _drawn_seed(self._form, self._seed_input)}, parameters

    def _encode(self, options: Options) -> Encoded:
        form, request = self._form, self._request
        has_echo = isinstance(request, CompletionRequest) and request.has_echo
        inputs: dict[str, Tensor] = {}
        parameters: dict[str, Parameter] = {}
        inputs |= {flag: _tensor(form, flag, True) for flag in form.flags}
        if form.takes_options:
            if form.tells_by_flags:
                _refuse_untold(options)
            is_toolless = form.tells_by_flags
            given = {name: value for name, value in options.items() if not (is_toolless and name in TOOLS)}
            if self.are_for_all_choices and request.choice_count > 1:
                given["n"] = request.choice_count
            if has_echo and not form.tells_by_flags:
                given["echo"] = True
            if request.adapter:
                given["adapter"] = request.adapter
            inputs["sampling_parameters"] = _tensor(form, "sampling_parameters", given)
        else:
            _refuse_constraints(form, options)
            if form.takes_tensors_alone:
                options = _for_tensors(form, options, inputs)
            elif form.backend == "transformers":
                options = _for_transformers(form, options)
            _spread_options(form, _with_top_p(form, options), inputs, parameters)
            if form.backend == "transformers":
                if has_echo:
                    parameters["return_full_text"] = True
                if form.is_decoupled and not request.is_stream:
                    parameters["stream"] = False
        if "stream" in form.inputs:
            inputs["stream"] = _tensor(form, "stream", request.is_stream)
        if form.may_begin_with_prompt:
            inputs["exclude_input_in_output"] = _tensor(form, "exclude_input_in_output", True)
        return inputs, parameters


def _refuse_constraints(form: GenerationForm, options: Options) -> None:
    for name in _NEEDING_A_LANGUAGE_MODEL:
        if (
            name in options
            and name not in form.inputs
            and options[name] not in _NEUTRAL.get(name, ())
            and not (name == "tools" and options.get("tool_choice") == "none")
        ):
            raise FieldError(name, f"'{name}' is not supported by this model.", "unsupported_parameter")


def _for_tensors(form: GenerationForm, options: Options, inputs: dict[str, Tensor]) -> Options:
    """The options that a model of TensorRT-LLM's inputs can follow, in its words; raises FieldError for another one
    that would change its text: nothing looks at the parameters of a request there."""
    found = dict(options)
    if found.get("top_k") == -1:  # all tokens, which is what it does by itself
        del found["top_k"]
    if found.get("ignore_eos") is True and _is_signed(form, "end_id"):
        inputs["end_id"] = _tensor(form, "end_id", _NO_END)
        del found["ignore_eos"]
    _leave_neutral(found, [name for name in _NEUTRAL if _input_of(form, name) is None])
    if "stop" in found and "stop" not in form.inputs:  # what the model does not end with is looked for here
        found["stop"] = [text for text in found["stop"] if not any(mark in text for mark in _SEPARATORS)]
    words = found.get("bad_words")
    if words is not None and len(words) == 1 and any(mark in words[0] for mark in _SEPARATORS):
        found["bad_words"] = words * 2  # several entries are words as they are
    return {name: value for name, value in found.items() if value != []}


def _for_transformers(form: GenerationForm, options: Options) -> Options:
    """The options in the words of the transformers backend; raises FieldError for others that would change the text."""
    found = dict(options)
    if found.get("top_k") == -1:
        del found["top_k"]
        if found.get("temperature") or "top_p" in found:
            found["top_k"] = 0  # all tokens; alone it would have them drawn
    if "seed" in found:
        found["seed"] = max(_wrapped(found["seed"], "INT64"), 1 - 2**63)
    _leave_neutral(
        found, [name for name in _NEUTRAL if name not in _TRANSFORMERS_NAMES and _input_of(form, name) is None]
    )
    return found


def _leave_neutral(found: Options, names: Sequence[str]) -> None:
    """Takes out those options, which the model cannot follow; raises FieldError for one that asks for anything."""
    for name in names:
        if name in found and found[name] not in _NEUTRAL[name]:
            raise FieldError(name, f"'{name}' is not supported by this model.", "unsupported_parameter")
        found.pop(name, None)


def _is_signed(form: GenerationForm, name: str) -> bool:
    return name in form.inputs and form.inputs[name].datatype.startswith("INT")


def _refuse_untold(options: Options) -> None:
    """What Triton's vLLM backend tells in another form than this API has, or not at all."""
    for name in ("logprobs", "prompt_logprobs", "tools"):
        if name in options and not (name == "tools" and options.get("tool_choice") == "none"):
            raise FieldError(name, f"'{name}' is not supported by this model.", "unsupported_parameter")


def _with_top_p(form: GenerationForm, options: Options) -> Options:
    """With a top-p that keeps all tokens, where the temperature would have no effect without one."""
    is_chosen = "top_p" in options or "top_k" in options
    if is_chosen or not form.draws_by_top_p or not options.get("temperature"):
        return options
    return {**options, "top_p": 1.0}


def _drawn_seed_input(form: GenerationForm, options: Options) -> str | None:
    """The input that gets a seed of its own for each choice, where tokens are drawn and the client gives no seed."""
    is_drawn = options.get("temperature", 1) and any(name in options for name in ("temperature", "top_p", "top_k"))
    if not is_drawn or "seed" in options or not form.draws_by_top_p:
        return None
    named = (name for name in OPTION_INPUTS["seed"] if name in form.inputs)
    return next((name for name in named if form.inputs[name].datatype in _SEED_BITS), None)


def _drawn_seed(form: GenerationForm, name: str) -> Tensor:
    return _tensor(form, name, secrets.randbits(_SEED_BITS[form.inputs[name].datatype]))


def _spread_options(
    form: GenerationForm, options: Options, inputs: dict[str, Tensor], parameters: dict[str, Parameter]
) -> None:
    """Gives each option as an input where the model has one for it, otherwise as a parameter of the request."""
    for name, value in options.items():
        entry = _input_of(form, name)
        if entry is not None:
            inputs[entry] = _tensor(form, entry, _as_seed(form, entry, value) if name == "seed" else value, name)
        elif form.backend != "transformers":
            parameters[name] = (
                value
                if isinstance(value, (bool, int, float, str))
                else json_text(name, value).decode("utf-8", "replace")
            )
        elif name in _TRANSFORMERS_NAMES:
            parameters[_TRANSFORMERS_NAMES[name]] = value
    for name in _wanted_limits(form):
        if name not in inputs:
            inputs[name] = _tensor(form, name, _USUAL_MAX_TOKENS)


def _wanted_limits(form: GenerationForm) -> list[str]:
    """The inputs that limit the tokens and have to be given."""
    return [name for name in OPTION_INPUTS["max_tokens"] if name in form.inputs and not form.inputs[name].is_optional]


def _input_of(form: GenerationForm, option: str) -> str | None:
    """Under which the model takes the option as a tensor."""
    return next((name for name in OPTION_INPUTS.get(option, (option,)) if name in form.inputs), None)


def _as_seed(form: GenerationForm, name: str, seed: int) -> int:
    """The one of the input's integers that stands for this seed: itself where it is one of them."""
    datatype = form.inputs[name].datatype
    return _wrapped(seed, datatype) if datatype in _SEED_BITS else seed


def _wrapped(seed: int, datatype: str) -> int:
    bits, least = _SEED_BITS[datatype], 0
    if datatype.startswith("INT"):
        bits, least = bits + 1, -(1 << bits)
    return least + (seed - least) % (1 << bits)


def _tensor(form: GenerationForm, name: str, value: Any, field: str | None = None) -> Tensor:
    if isinstance(value, Mapping):
        value = json_text(name, value)
    return input_tensor(form.inputs[name], value if isinstance(value, list) else [value], form.has_batch, field)
