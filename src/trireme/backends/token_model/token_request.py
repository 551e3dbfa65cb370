"""A request as tensors, read: prompts of token ids, and how each is to be continued."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from trireme.backends.python.pb_utils.request import InferenceRequest, parameters_of
from trireme.backends.token_model.tensor_inputs import TensorInputs
from trireme.backends.token_model.word_lists import Words
from trireme.llm.sampling_params import LongPromptError, SamplingError, SamplingParams

_PROMPT_TUNING = (
    "prompt_embedding_table", "prompt_vocab_size", "prompt_table_extra_id", "prompt_table_extra_ids",
    "prompt_learning_task_name_ids", "request_prompt_embedding", "request_prompt_lengths", "request_prompt_type",
)  # fmt: skip
_REFUSED = {
    **dict.fromkeys(_PROMPT_TUNING, "prompts are token ids, and no embeddings are put in; write the prompt out"),
    **dict.fromkeys(
        ("lora_weights", "lora_config"),
        "adapters are read from peft's folders; put one into the folder that the model's parameter 'lora_prefetch_dir' "
        "names, called as its 'lora_task_id'",
    ),
    **dict.fromkeys(
        ("encoder_input_features", "cross_attention_mask"), "the model has no encoder; send the prompt as 'input_ids'"
    ),
    **dict.fromkeys(
        ("mrope_rotary_cos_sin", "mrope_position_deltas"), "tokens stand where they are in the prompt; leave it out"
    ),
    "context_phase_params": "a prompt is read where it is continued; send the request to one model",
    "draft_logits": "every token is checked by the model itself; leave it out",
    **dict.fromkeys(
        ("guided_decoding_guide_type", "guided_decoding_guide"),
        "texts are not held to a grammar here; the backend 'llm' does that",
    ),
}
"""What changes an answer and cannot be followed, and what to do."""
_TENSORS = {
    "bad_words": "bad_words_list",
    "logit_bias": "embedding_bias",
    "length_penalty": "len_penalty",
    "num_beams": "beam_width",
    "n": "beam_width",
}
"""By the engine's name for it, where that is another: the tensor's."""
_REFUSED_FLAGS = ("return_context_logits", "return_generation_logits")
_NEUTRAL: dict[str, int | None] = {
    **dict.fromkeys(("end_id", "pad_id", "start_id", "lora_task_id", "runtime_top_p_reset_ids", "top_p_reset_ids")),
    **dict.fromkeys(("beam_width", "num_return_sequences", "temperature", "runtime_top_p", "len_penalty"), 1),
    **dict.fromkeys(("repetition_penalty", "runtime_top_p_decay", "top_p_decay"), 1),
    **dict.fromkeys(("runtime_top_k", "presence_penalty", "frequency_penalty", "min_length", "min_tokens"), 0),
    **dict.fromkeys(("random_seed", "seed", "beam_search_diversity_rate", "runtime_top_p_min", "top_p_min"), 0),
    **dict.fromkeys(("early_stopping", "exclude_input_in_output", "streaming", "is_return_log_probs"), 0),
    **dict.fromkeys(("return_log_probs", "output_log_probs"), 0),
    **dict.fromkeys(("return_num_input_tokens", "return_num_output_tokens"), 0),
}
"""Tensors that change an answer, and the value that does not; a request has them among its parameters where the model
does not declare them, or its client does not know that they are tensors."""
_LOGPROB_FLAGS = ("return_log_probs", "output_log_probs", "is_return_log_probs")
LOGPROB_OUTPUTS = frozenset({"cum_log_probs", "output_log_probs", "log_probs"})
COUNT_OUTPUTS = frozenset({"num_input_tokens", "num_output_tokens"})
"""Told to who sets the flag of the name with `return_` before it."""

_NO_TOKEN = (-1, 2**32 - 1)
"""What stands for none among tensors of tokens, with a sign and without."""


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt."""

    tokens: list[int]
    params: SamplingParams
    end_ids: tuple[int, ...]
    stop_words: Words
    fill: int
    """What stands behind its end."""

    def drawn_anew(self, number: int) -> Row:
        """The same with another seed; 0: the same."""
        return replace(self, params=replace(self.params, seed=((self.params.seed or 0) + number) % 2**64))


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """All prompts of a request."""

    rows: list[Row]
    prompt_width: int
    """Of the tensor of prompts, with what they are filled up with."""
    beams: int
    is_stream: bool
    is_stop: bool
    has_logprobs: bool
    outputs: frozenset[str]
    has_prompt: bool | None = None
    """Whether the answer begins with the prompt; None: as the model does it."""
    sequences: int = 1
    """Texts that are drawn for each prompt."""
    batch_index: int = 0
    """Where the first prompt stands among those that were sent together."""
    sequence_index: int = 0
    """Which of a prompt's texts is asked for."""
    adapter: int | None = None
    """The number of the adapter that all prompts are continued with."""

    def apart(self) -> list[TokenRequest]:
        """A request for each text, in the order of the prompts; texts of the same prompt have seeds of their own."""
        return [
            replace(self, rows=[row.drawn_anew(number)], sequences=1, batch_index=place, sequence_index=number)
            for place, row in enumerate(self.rows)
            for number in range(self.sequences)
        ]

    @property
    def max_tokens(self) -> int:
        """That any row may write."""
        return max(row.params.max_tokens or 0 for row in self.rows)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a model lets requests ask for."""

    end_ids: tuple[int, ...]
    """Of the model, for requests that name none."""
    fills_with_pad: bool
    max_length: int
    """Of a prompt and what is written behind it: what the model takes, or its cache where that is smaller."""
    max_texts: int
    """That are written at the same time."""
    length_penalty: float = 1.0
    """Of a search whose request names none."""
    max_beams: int | None = None
    """That the model's parameter `max_beam_width` allows; None: it says nothing."""
    vocab_size: int | None = None
    """Which ids of tokens have to be within; None: they are taken as they come."""
    start_id: int | None = None
    """What a prompt without tokens begins with where its request does not say; None: it has to."""
    has_adapters: bool = False
    """Whether there are any."""
    tokenizer_sizes: Callable[[], Collection[int]] = frozenset
    """Of the vocabulary as the checkpoint's tokenizer counts it, where the model's is filled up."""

    def check_bias(self, shape: list[int]) -> None:
        """Raises SamplingError where the tensor has no number for each token of the vocabulary."""
        size, width = self.vocab_size, shape[-1]
        if size is None or width == size or (width < size and width in self.tokenizer_sizes()):
            return
        raise SamplingError(
            f"'embedding_bias' must be a number for each of the {size} tokens of the vocabulary, [prompts, {size}], "
            f"found {shape}"
        )

    def check_beams(self, beams: int) -> None:
        """Raises SamplingError."""
        if beams < 1:
            raise SamplingError(f"'beam_width' must be at least 1, found {beams}")
        if self.max_beams is not None and beams > self.max_beams:
            raise SamplingError(
                f"'beam_width' is {beams}, and the model's parameter 'max_beam_width' allows {self.max_beams}"
            )

    def check_adapter(self, task: int) -> None:
        """Raises SamplingError."""
        if not self.has_adapters:
            raise SamplingError(
                f"'lora_task_id' is {task}, and the model has no adapters: name their folder with the parameter "
                f"'lora_prefetch_dir', in which that of peft is called {task}"
            )

    def check_id(self, name: str, token: int, least: int) -> None:
        """Raises SamplingError where the vocabulary has no such token, and `least` does not stand for none."""
        if self.vocab_size is not None and not least <= token < self.vocab_size:
            raise SamplingError(
                f"'{name}' must be a token of the vocabulary, from {least} to {self.vocab_size - 1}, found {token}"
            )

    def check_tokens(self, name: str, tokens: Iterable[int]) -> None:
        """Raises SamplingError where the vocabulary does not have all of them."""
        size = self.vocab_size
        if size is None or (wrong := next((token for token in tokens if not 0 <= token < size), None)) is None:
            return
        raise SamplingError(f"'{name}' has the token {wrong}, and the vocabulary those from 0 to {size - 1}")


def read_request(request: InferenceRequest, limits: Limits, names: Collection[str], wants_all: bool) -> TokenRequest:
    """Raises SamplingError with the tensor's name, LongPromptError where there is no room for the answer; `wants_all`:
    probabilities are told to who wants their tensors."""
    inputs = TensorInputs({tensor.name(): tensor.as_numpy() for tensor in request.inputs()})
    is_stop = inputs.flag("stop")
    outputs = frozenset(names)
    if is_stop:
        return TokenRequest([], 0, 1, False, True, False, outputs)
    _refuse(inputs, parameters_of(request))
    flags = [name for name in _LOGPROB_FLAGS if inputs.has(name)]
    has_logprobs = any(inputs.flag(name) for name in flags) or (wants_all and bool(outputs & LOGPROB_OUTPUTS))
    beams = inputs.common("beam_width", 1)
    limits.check_beams(beams)
    sequences = inputs.common("num_return_sequences", 1)
    if sequences < 1 or (sequences > 1 and beams > 1):
        raise SamplingError(f"'num_return_sequences' must be at least 1, and 1 with several beams: {sequences}")
    texts = beams * sequences
    if inputs.count * texts > limits.max_texts:
        raise SamplingError(
            f"{inputs.count} prompts with {texts} texts each ('beam_width', 'num_return_sequences') are more than the "
            f"{limits.max_texts} texts that can be written at the same time"
        )
    rows = [_read_row(inputs, row, limits, has_logprobs, beams) for row in range(inputs.count)]
    is_stream, has_prompt = inputs.flag("streaming"), None
    if inputs.has("exclude_input_in_output"):
        has_prompt = not inputs.flag("exclude_input_in_output")
    counts = frozenset(name for name in COUNT_OUTPUTS if inputs.flag(f"return_{name}"))
    outputs -= COUNT_OUTPUTS - counts
    width, adapter = max(1, inputs.width), None
    if inputs.has("lora_task_id"):
        adapter = inputs.common("lora_task_id", 0)
        limits.check_adapter(adapter)
    return TokenRequest(
        rows, width, beams, is_stream, False, has_logprobs, outputs, has_prompt, sequences, adapter=adapter
    )


def _refuse(inputs: TensorInputs, parameters: Mapping[str, bool | int | float | str]) -> None:
    for name, reason in _REFUSED.items():
        if inputs.has(name) or parameters.get(name):
            raise SamplingError(f"'{name}' cannot be followed: {reason}")
    for name in _REFUSED_FLAGS:
        if inputs.flag(name) or parameters.get(name):
            raise SamplingError(f"'{name}' cannot be followed: no logits are given; ask for log probabilities")
    for name, value in parameters.items():
        if name in _NEUTRAL and value != _NEUTRAL[name]:
            raise SamplingError(
                f"'{name}' came as a parameter of the request, which is not followed: it is a tensor, and has to be "
                "among the inputs of the model's configuration"
            )


def _read_row(inputs: TensorInputs, row: int, limits: Limits, has_logprobs: bool, beams: int) -> Row:
    size = inputs.whole("input_lengths", row, inputs.width)
    begins_alone = size == 0 and (inputs.has("start_id") or limits.start_id is not None)
    if inputs.width == 0 and not begins_alone:
        raise SamplingError("'input_ids' has no tokens: a prompt has at least one")
    if not (1 <= size <= inputs.width or begins_alone):
        raise SamplingError(f"'input_lengths' must be between 1 and {inputs.width}, the size of 'input_ids': {size}")
    count = inputs.required("request_output_len", row)
    if count < 1:
        raise SamplingError(f"'request_output_len' must be at least 1, found {count}")
    if max(size, 1) >= limits.max_length:  # whatever is asked for behind it
        raise LongPromptError(
            f"the prompt has {max(size, 1)} tokens, and with an answer is longer than what the model and its cache "
            f"take: {limits.max_length}"
        )
    if max(size, 1) + count > limits.max_length:
        raise LongPromptError(
            f"'request_output_len' is {count} behind a prompt of {max(size, 1)} tokens, and the model and its "
            f"cache take {limits.max_length} in all"
        )
    end = inputs.whole("end_id", row, 0) if inputs.has("end_id") else None
    ends = limits.end_ids if end is None else (end,) if end >= 0 else ()
    fill = ends[0] if ends else 0
    if end is not None:
        limits.check_id("end_id", end, -1)
    if limits.fills_with_pad and inputs.has("pad_id"):
        fill = inputs.whole("pad_id", row, fill)
        limits.check_id("pad_id", fill, 0)
    if inputs.has("start_id"):
        limits.check_id("start_id", inputs.whole("start_id", row, 0), 0)
    params = _params(inputs, row, limits, count, has_logprobs, beams)
    prompt = [int(token) for token in inputs.prompts[row, :size]]
    limits.check_tokens("input_ids", prompt)
    if begins_alone:
        prompt = [inputs.whole("start_id", row, limits.start_id or 0)]
    return Row(prompt, params, ends, inputs.words("stop_words_list", row), fill)


def _params(
    inputs: TensorInputs, row: int, limits: Limits, count: int, has_logprobs: bool, beams: int
) -> SamplingParams:
    """What cannot be followed is told by the tensor's name."""
    minimum = inputs.first("min_tokens", "min_length")
    bad_words = inputs.words("bad_words_list", row)
    limits.check_tokens("bad_words_list", chain.from_iterable(bad_words))
    try:
        return SamplingParams(
            max_tokens=count,
            min_tokens=min(inputs.whole(minimum, row, 0), count),
            seed=inputs.whole(inputs.first("seed", "random_seed"), row, 0),
            repetition_penalty=inputs.real("repetition_penalty", row, 1.0),
            presence_penalty=inputs.real("presence_penalty", row, 0.0),
            frequency_penalty=inputs.real("frequency_penalty", row, 0.0),
            bad_words=bad_words,
            logit_bias=inputs.bias(row, limits.check_bias),
            logprobs=0 if has_logprobs else None,
            **(_search(inputs, row, beams, limits) if beams > 1 else _choice(inputs, row, limits)),
        )
    except SamplingError as error:
        names = _TENSORS | {"min_tokens": minimum}
        names |= {f"top_p_{word}": inputs.first(f"runtime_top_p_{word}", f"top_p_{word}") for word in ("decay", "min")}
        _, field, rest = str(error).split("'", 2)
        raise SamplingError(f"'{names.get(field, field)}'{rest}") from None


def _search(inputs: TensorInputs, row: int, beams: int, limits: Limits) -> dict[str, Any]:
    return {
        "beams": beams,
        "choices": beams,
        "length_penalty": inputs.real("len_penalty", row, limits.length_penalty),
        "diversity_rate": inputs.real("beam_search_diversity_rate", row, 0.0),
        "early_stopping": inputs.flag("early_stopping"),
    }


def _choice(inputs: TensorInputs, row: int, limits: Limits) -> dict[str, Any]:
    """Top-k where it is above 0, top-p where it is; neither, or the one most likely token: greedy."""
    top_k, top_p = inputs.whole("runtime_top_k", row, 0), inputs.real("runtime_top_p", row, 0.0)
    if top_k < 0 or not 0 <= top_p <= 1:
        raise SamplingError(f"'runtime_top_k' must be 0 or more and 'runtime_top_p' within 0 and 1: {top_k}, {top_p}")
    temperature = inputs.real("temperature", row, 1.0)
    if top_k == 1 or (top_k == 0 and top_p == 0):
        SamplingParams(temperature=temperature)  # refuses what is none, although it changes nothing
        return {"temperature": 0.0}
    found = {"temperature": temperature, "top_k": top_k, "top_p": top_p or 1.0}
    return found | (_decay(inputs, row, limits) if not top_k else {})


def _decay(inputs: TensorInputs, row: int, limits: Limits) -> dict[str, Any]:
    """How top-p falls with the tokens, where no top-k stands before it, under the names of either backend."""
    found: dict[str, Any] = {}
    for prefix in ("", "runtime_"):
        for name in ("top_p_decay", "top_p_min"):
            if inputs.has(prefix + name):
                found[name] = inputs.real(prefix + name, row, 1.0)
        resets = f"{prefix}top_p_reset_ids"
        token = inputs.whole(resets, row, -1)
        if token not in _NO_TOKEN:
            limits.check_id(resets, token, 0)
            found["top_p_reset_id"] = token
    return found
