"""`max_length`, which counts the prompt: what it asked for before releases refused it or put their own limit first."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from trireme.backends.python.compat.report import tell_once


def give_long_prompts_one_token(module: ModuleType) -> None:
    """In `transformers.generation.utils`: a prompt that fills `max_length` is continued by one token, not refused."""
    mixin = module.GenerationMixin
    validate = mixin._validate_generated_length

    def _validate_generated_length(
        self: Any, generation_config: Any, input_ids_length: int, has_default_max_length: bool
    ) -> Any:
        limit = generation_config.max_length
        ends_the_context = has_default_max_length and limit == getattr(self.config, "max_position_embeddings", None)
        if generation_config.max_new_tokens is None and input_ids_length >= limit and not ends_the_context:
            tell_once(
                "prompt fills max_length",
                f"a prompt of {input_ids_length} tokens is not shorter than max_length={limit}, which this release of "
                "transformers refuses; one token was generated, as earlier releases did (max_new_tokens counts "
                "without the prompt)",
            )
            generation_config.max_length = input_ids_length + 1
        return validate(self, generation_config, input_ids_length, has_default_max_length)

    mixin._validate_generated_length = _validate_generated_length


def respect_max_length(module: ModuleType) -> None:
    """In the text-generation pipeline: `max_length` neither cuts the prompt nor gives way to the pipeline's default."""
    pipeline = module.TextGenerationPipeline
    sanitize = pipeline._sanitize_parameters

    def _sanitize_parameters(self: Any, *args: Any, **kwargs: Any) -> Any:
        preprocess, forward, postprocess = sanitize(self, *args, **kwargs)
        limit = kwargs.get("max_length")
        if limit is not None:
            if kwargs.get("truncation") is None and kwargs.get("padding") != "max_length":
                preprocess.pop("max_length", None)
            if "max_new_tokens" not in forward and _default_wins(self):
                tell_once(
                    "pipeline's own limit",
                    f"this release of transformers would ignore max_length={limit} and generate up to "
                    f"{self.generation_config.max_new_tokens} new tokens; max_length was respected",
                )
                forward["max_new_tokens"] = None
        return preprocess, forward, postprocess

    pipeline._sanitize_parameters = _sanitize_parameters


def _default_wins(pipeline: Any) -> bool:
    """Whether the pipeline's default of new tokens, which is not the model's wish, would be preferred."""
    config = getattr(pipeline, "generation_config", None)
    own = getattr(pipeline.model, "generation_config", None)
    return getattr(config, "max_new_tokens", None) is not None and getattr(own, "max_new_tokens", None) is None
