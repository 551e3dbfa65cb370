"""Generation for a batch of prompts: options, one call of the library, and each prompt's own text."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trireme.backends.compiled.batching import RequestError
from trireme.backends.transformers.items import Item
from trireme.backends.transformers.loading import Loaded
from trireme.backends.transformers.runner import UnrepeatableError
from trireme.backends.transformers.text.generated_text import Decode, GeneratedText, cancel_watch, row_watch
from trireme.backends.transformers.text.repetition import penalty_without_padding
from trireme.backends.transformers.text.text_batch import TextBatches, TokenIds

DEFAULT_NEW_TOKENS = 256
_LIBRARY_MAX_LENGTH = 20  # where a model's files do not say
_LEAST = {"max_new_tokens": 1, "min_new_tokens": 0, "top_k": 0, "num_beams": 1, "temperature": 0.0}
_SAMPLING = ("temperature", "top_k", "top_p")
_COLDEST = 1e-5  # below, numbers overflow, and it is the likeliest token that is drawn anyway
MOST_NEW_TOKENS = 32_768  # of a model whose context has no end: one request must not go on for ever
_MOST_BEAMS = 128  # each is a row of the batch: one request must not take the memory of all
_SEED_BITS = 64
_CONTEXT_TOKENS = 4


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is to be continued, and how."""

    item: Item
    ids: TokenIds
    """Empty where there is no text to continue."""
    limit: int
    """Of new tokens."""
    settings: Mapping[str, Any]
    """Arguments of `generate` that all prompts of a batch share."""
    seed: int | None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def stops(self) -> Sequence[str]:
        """Texts that end the generation."""
        found: Sequence[str] = self.item.options.get("stop", ())
        return found


class Generator:
    """Shared by models that continue a text and models that write one about another."""

    def __init__(self, loaded: Loaded, texts: TextBatches) -> None:
        self._torch = loaded.torch
        self._transformers = loaded.transformers
        self._model = loaded.model
        self._tokenizer = loaded.tokenizer
        self._texts = texts
        config = loaded.model.generation_config
        self._beam_count = config.num_beams or 1
        self._penalty = config.repetition_penalty or 1.0
        self._forces_end = getattr(config, "forced_eos_token_id", None) is not None
        self._is_encoder_decoder = bool(loaded.model.config.is_encoder_decoder)
        self._new_tokens = int(config.max_new_tokens or self._length_of_output(config.max_length))
        self._is_sampling = bool(config.do_sample)
        config.max_length = None  # max_new_tokens is always given, and the library complains of two limits
        end = config.eos_token_id if config.eos_token_id is not None else loaded.tokenizer.eos_token_id
        self._end_ids = frozenset(end if isinstance(end, (list, tuple)) else () if end is None else (end,))
        self._fixed: dict[str, Any] = {"num_return_sequences": 1}
        if _is_librarys_own(loaded.model.generate):
            self._fixed["pad_token_id"] = texts.padding_id
        elif config.pad_token_id is None:  # what has a `generate` of its own may not take it as an argument
            config.pad_token_id = texts.padding_id

    def _length_of_output(self, max_length: int | None) -> int:
        """A decoder of its own counts the token that it starts with; others count the prompt, and say nothing of what
        is new."""
        is_chosen = self._is_encoder_decoder and max_length is not None and max_length > _LIBRARY_MAX_LENGTH
        return max_length - 1 if is_chosen and max_length is not None else DEFAULT_NEW_TOKENS

    def wanted_tokens(self, options: Mapping[str, Any]) -> int:
        """How many new tokens there may be, for all that is asked for."""
        return int(options.get("max_new_tokens", self._new_tokens))

    def prompt(self, item: Item, ids: TokenIds, room: int | None, extra: Mapping[str, Any] | None = None) -> Prompt:
        """Checks the options; `room` is how many tokens the model can write at most."""
        options = item.options
        check_generation_options(options)
        limit = self.wanted_tokens(options)
        if room is None:
            check_endless(limit)
        else:
            limit = min(limit, room)
        if options.get("min_new_tokens", 0) > limit:
            raise RequestError(f"'min_new_tokens' is {options['min_new_tokens']}, and there may be {limit} at most")
        settings = self._settings(options)
        if settings["num_beams"] > 1 and item.emit is not None:
            raise RequestError("'num_beams' above 1 cannot be streamed")
        if settings["num_beams"] > 1 or self._forces_end:  # what is written depends on where it has to end
            settings["max_new_tokens"] = limit
        seed = options.get("seed") if settings["do_sample"] else None
        return Prompt(item, ids, limit, settings, seed, extra or {})

    def key(self, prompt: Prompt) -> Hashable:
        """Equal settings run together; what has a seed runs alone, since its draws depend on its neighbours."""
        return (
            tuple(prompt.settings.items()),
            tuple(prompt.extra.items()),
            None if prompt.seed is None else id(prompt),
            self._texts.key([prompt.ids] if prompt.ids else []),
        )

    def generate(self, prompts: Sequence[Prompt], batch: Mapping[str, Any]) -> list[str]:
        """The new text of each prompt; `batch` holds their padded ids, and what else the model takes."""
        first = prompts[0]
        if first.seed is not None:
            self._torch.manual_seed(first.seed)
        settings = {"max_new_tokens": max(prompt.limit for prompt in prompts), **first.settings, **first.extra}
        settings |= self._fixed
        penalty = settings.pop("repetition_penalty", self._penalty)
        if penalty != 1 and not self._is_encoder_decoder and _is_padded(batch):
            settings["logits_processor"] = [penalty_without_padding(self._torch, self._transformers, penalty, batch)]
            penalty = 1.0
        settings["repetition_penalty"] = penalty
        if settings["num_beams"] > 1:
            return self._search_beams(prompts, batch, settings)
        texts = [
            GeneratedText(
                self._decoder(prompt),
                self._end_ids,
                prompt.limit,
                prompt.stops,
                prompt.item.is_cancelled,
                prompt.item.emit,
            )
            for prompt in prompts
        ]
        ids = batch.get("input_ids")
        watch = row_watch(self._torch, texts, len(prompts) if ids is None else ids.shape[0])
        try:
            self._model.generate(**batch, **settings, stopping_criteria=self._criteria(watch))
        except Exception as error:
            if any(text.has_emitted for text in texts):
                raise UnrepeatableError(f"the generation broke off: {error}") from error
            raise
        return [text.finish() for text in texts]

    def _search_beams(self, prompts: Sequence[Prompt], batch: Mapping[str, Any], settings: dict[str, Any]) -> list[str]:
        watch = cancel_watch(self._torch, [prompt.item.is_cancelled for prompt in prompts])
        sequences = self._model.generate(**batch, **settings, stopping_criteria=self._criteria(watch)).tolist()
        answers = []
        for row, (prompt, sequence) in enumerate(zip(prompts, sequences, strict=False)):
            first_new = self._given_count(batch, row, sequence)
            text = GeneratedText(
                self._decoder(prompt), self._end_ids, len(sequence), prompt.stops, prompt.item.is_cancelled, None
            )
            for token in sequence[first_new:]:
                if text.is_done:
                    break
                text.push(token)
            answers.append(text.finish())
        return answers

    def _given_count(self, batch: Mapping[str, Any], row: int, sequence: Sequence[int]) -> int:
        """How many tokens of the output are the prompt: some models leave out the one that ends it, and those that go
        on from embeddings leave out all."""
        given = batch.get("decoder_input_ids", None if self._is_encoder_decoder else batch.get("input_ids"))
        if given is None:
            return 1  # the one that every text starts with
        ids = given[row].tolist()
        return next((count for count in (len(ids), len(ids) - 1) if sequence[:count] == ids[:count]), 0)

    def _criteria(self, watch: Any) -> Any:
        return self._transformers.StoppingCriteriaList([watch])

    def _decoder(self, prompt: Prompt) -> Decode:
        """Reads new tokens after the end of the prompt, since many tokenizers write no space before a first word."""
        ids = () if self._is_encoder_decoder else prompt.ids.get("input_ids", ())
        end = list(ids[-_CONTEXT_TOKENS:])
        before = self._decode(end)
        if not before:
            return self._decode

        def decode(new: Sequence[int]) -> str:
            text = self._decode([*end, *new])
            return text[len(before) :] if text.startswith(before) else self._decode(new)

        return decode

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))

    def _settings(self, options: Mapping[str, Any]) -> dict[str, Any]:
        temperature = options.get("temperature")
        has_sampling_options = any(name in options for name in _SAMPLING)
        is_cold = temperature is not None and temperature < _COLDEST
        is_sampling = options.get("do_sample", self._is_sampling or has_sampling_options) and not is_cold
        settings = {"do_sample": bool(is_sampling), "num_beams": options.get("num_beams", self._beam_count)}
        if is_sampling:
            settings |= {name: options[name] for name in _SAMPLING if name in options}
        else:
            settings |= dict.fromkeys(_SAMPLING)  # the library warns of settings that have no effect
        settings |= {name: options[name] for name in ("min_new_tokens", "repetition_penalty") if name in options}
        return settings


def _is_librarys_own(generate: Any) -> bool:
    """Whether it is the one that all models share."""
    return str(getattr(generate, "__module__", "")).startswith("transformers.generation")


def _is_padded(batch: Mapping[str, Any]) -> bool:
    mask = batch.get("attention_mask")
    return mask is not None and not bool(mask.all())


def check_endless(wanted: int) -> None:
    """For a model that could go on for ever; raises RequestError."""
    if wanted > MOST_NEW_TOKENS:
        raise RequestError(f"'max_new_tokens' must be at most {MOST_NEW_TOKENS} for this model, found {wanted}")


def check_generation_options(options: Mapping[str, Any]) -> None:
    """Raises RequestError for values that make no sense, or would cost too much."""
    for name, least in _LEAST.items():
        if name in options and not options[name] >= least:
            raise RequestError(f"'{name}' must be at least {least}, found {options[name]}")
    for name in ("temperature", "repetition_penalty"):
        if not math.isfinite(options.get(name, 1)):
            raise RequestError(f"'{name}' must be a finite number, found {options[name]}")
    if options.get("num_beams", 1) > _MOST_BEAMS:
        raise RequestError(f"'num_beams' must be at most {_MOST_BEAMS}, found {options['num_beams']}")
    if options.get("seed", 0).bit_length() >= _SEED_BITS:
        raise RequestError(f"'seed' must fit into {_SEED_BITS} bits, found {options['seed']}")
    if options.get("num_return_sequences", 1) != 1:
        raise RequestError("'num_return_sequences' must be 1: send the prompt as often as there are to be answers")
    if not 0 < options.get("top_p", 1) <= 1:
        raise RequestError(f"'top_p' must be above 0 and at most 1, found {options['top_p']}")
    if not options.get("repetition_penalty", 1) > 0:
        raise RequestError(f"'repetition_penalty' must be above 0, found {options['repetition_penalty']}")
