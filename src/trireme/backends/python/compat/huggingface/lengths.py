"""`max_length`, which counts the prompt: what it asked for before releases refused it or put their own limit first."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from trireme.backends.python.compat import switches
from trireme.backends.python.compat.report import tell_change, tell_offer, tell_rescue

WORD = "lengths"


def continue_full_prompts(module: ModuleType) -> None:
    """In `transformers.generation.utils`: a prompt that fills `max_length` is refused, and here gets one token."""
    mixin = module.GenerationMixin
    validate = mixin._validate_generated_length

    @functools.wraps(validate)
    def _validate_generated_length(
        self: Any, generation_config: Any, input_ids_length: int, has_default_max_length: bool
    ) -> Any:
        try:
            return validate(self, generation_config, input_ids_length, has_default_max_length)
        except ValueError:
            limit = generation_config.max_length
            ends_the_context = has_default_max_length and limit == getattr(self.config, "max_position_embeddings", None)
            is_full = generation_config.max_new_tokens is None and input_ids_length >= limit
            if not is_full or ends_the_context or not switches.may_rescue():
                raise
        tell_rescue(
            "prompt fills max_length",
            f"a prompt of {input_ids_length} tokens is not shorter than max_length={limit}, which this release of "
            "transformers refuses; one token was generated, as earlier releases did (max_new_tokens counts without "
            "the prompt)",
        )
        generation_config.max_length = input_ids_length + 1
        return validate(self, generation_config, input_ids_length, has_default_max_length)

    mixin._validate_generated_length = _validate_generated_length


def keep_refused_prompts(module: ModuleType) -> None:
    """In the text-generation pipeline: a prompt that was cut to `max_length`, and is refused because it has that
    length, stays whole."""
    pipeline = module.TextGenerationPipeline
    prepare = pipeline.preprocess
    if not hasattr(pipeline, "_get_set_generation_params"):
        return  # releases that put their own limit first, and so never refuse

    @functools.wraps(prepare)
    def preprocess(self: Any, prompt_text: Any, *args: Any, **kwargs: Any) -> Any:
        inputs = prepare(self, prompt_text, *args, **kwargs)
        limit = kwargs.get("max_length")
        if limit is None or args or _says_how_to_cut(kwargs) or not switches.may_rescue():
            return inputs
        if inputs["input_ids"].shape[-1] < limit or not _is_the_limit(self, kwargs):
            return inputs
        return prepare(self, prompt_text, **{**kwargs, "max_length": None})

    pipeline.preprocess = preprocess


def respect_max_length(module: ModuleType) -> None:
    """In the text-generation pipeline: `max_length` neither cuts the prompt nor gives way to the pipeline's default."""
    pipeline = module.TextGenerationPipeline
    sanitize = pipeline._sanitize_parameters

    @functools.wraps(sanitize)
    def _sanitize_parameters(self: Any, *args: Any, **kwargs: Any) -> Any:
        preprocess, forward, postprocess = sanitize(self, *args, **kwargs)
        limit = kwargs.get("max_length")
        if limit is None:
            return preprocess, forward, postprocess
        is_asked_for = switches.is_asked_for(WORD)
        if is_asked_for and not _says_how_to_cut(kwargs):
            preprocess.pop("max_length", None)
        if "max_new_tokens" not in forward and _default_wins(self):
            own = f"up to {self.generation_config.max_new_tokens} new tokens"
            ignored = f"this release of transformers ignores max_length={limit} and generates {own}"
            if is_asked_for:
                forward["max_new_tokens"] = None
                tell_change("pipeline's own limit", f"{ignored} by itself; max_length was respected", WORD)
            elif switches.may_rescue():
                tell_offer("pipeline's own limit", f"{ignored}; compat '{WORD}' respects it")
        return preprocess, forward, postprocess

    pipeline._sanitize_parameters = _sanitize_parameters


def _says_how_to_cut(kwargs: dict[str, Any]) -> bool:
    is_said = kwargs.get("truncation") is not None or kwargs.get("padding") == "max_length"
    return is_said or bool(kwargs.get("tokenizer_encode_kwargs"))


def _is_the_limit(pipeline: Any, kwargs: dict[str, Any]) -> bool:
    """Whether `max_length` is what ends the generation; `kwargs` are those of `preprocess`, which gets all of them."""
    relevant = {name: kwargs[name] for name in ("max_length", "max_new_tokens", "generation_config") if name in kwargs}
    found = pipeline._get_set_generation_params(pipeline._prepare_generate_kwargs(relevant))
    return found.get("max_new_tokens") is None


def _default_wins(pipeline: Any) -> bool:
    """Whether the pipeline's default of new tokens, which is not the model's own, would be preferred."""
    config = getattr(pipeline, "generation_config", None)
    own = getattr(pipeline.model, "generation_config", None)
    return getattr(config, "max_new_tokens", None) is not None and getattr(own, "max_new_tokens", None) is None
