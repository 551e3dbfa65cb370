"""A causal language model of transformers that continues lists of prompts, whatever the device."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from trireme.backends.compiled.model_load import ModelLoadError, require
from trireme.backends.compiled.shape_buckets import bucket_for, buckets_up_to, default_buckets
from trireme.backends.gaudi.accelerator import Accelerator
from trireme.backends.gaudi.generation_settings import GenerationSettings
from trireme.backends.python.pb_utils.logger import Logger


class TextGenerator:
    """Owns the model and its tokenizer. Prompts run together, at most as many as the largest batch bucket."""

    def __init__(self, settings: GenerationSettings, accelerator: Accelerator) -> None:
        self._torch = require("torch", "transformers")
        self._settings = settings
        self._accelerator = accelerator
        transformers = require("transformers", "transformers")
        transformers.set_seed(settings.seed)
        self._tokenizer = self._load_tokenizer(transformers)
        model = self._load_model(transformers)
        self._max_input_tokens = self._room_for_prompt(model.config)
        is_static = accelerator.is_hpu if settings.has_static_shapes is None else settings.has_static_shapes
        self._buckets = self._length_buckets() if is_static else ()
        self._generation = self._generation_config(model, is_static)
        self._model = accelerator.graphed(model, uses_graphs=settings.uses_hpu_graphs, compiles=settings.compiles)

    def warm_up(self) -> str:
        """Has every graph made that a request may need; the continuation of the warm-up text."""
        shapes = [(rows, length) for length in self._buckets for rows in self._settings.batch_buckets]
        for rows, length in shapes:
            Logger.log_info(f"warming up {rows} x {length} tokens")
            self._run([self._settings.warm_up] * rows, length)
        return self.continue_texts([self._settings.warm_up])[0]

    def continue_texts(self, texts: Sequence[str]) -> list[str]:
        """Each prompt with its continuation, in order."""
        return [answer for batch in self._batches(texts) for answer in self._run(batch, None)]

    def _batches(self, texts: Sequence[str]) -> Iterator[Sequence[str]]:
        most = self._settings.batch_buckets[-1]
        for start in range(0, len(texts), most):
            yield texts[start : start + most]

    def _run(self, texts: Sequence[str], length: int | None) -> list[str]:
        tokens = self._encode(texts, length)
        with self._torch.no_grad():
            options = self._accelerator.generate_options(uses_graphs=self._settings.uses_hpu_graphs)
            made = self._model.generate(**tokens, generation_config=self._generation, **options)
        self._accelerator.finish_step()
        return list(self._tokenizer.batch_decode(made.cpu()[: len(texts)], skip_special_tokens=True))

    def _encode(self, texts: Sequence[str], length: int | None) -> dict[str, Any]:
        """Ids and mask only: some tokenizers make more, which `generate` refuses."""
        beginning = self._tokenizer.bos_token or self._tokenizer.eos_token
        prompts = [text or beginning for text in texts]
        if self._buckets:
            rows = bucket_for(len(prompts), self._settings.batch_buckets)
            prompts += [prompts[-1]] * (rows - len(prompts))
        limits = {"truncation": True, "max_length": self._max_input_tokens}
        tokens = self._tokenizer(prompts, padding=True, return_tensors="pt", **limits)
        if self._buckets:
            length = length or bucket_for(tokens["input_ids"].shape[1], self._buckets)
            tokens = self._tokenizer.pad(tokens, padding="max_length", max_length=length, return_tensors="pt")
        return {name: tokens[name].to(self._accelerator.device) for name in ("input_ids", "attention_mask")}

    def _load_tokenizer(self, transformers: Any) -> Any:
        sides = {"padding_side": "left", "truncation_side": "left"}  # what is generated follows the end of the prompt
        tokenizer = self._load(transformers.AutoTokenizer, **sides)
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        return tokenizer

    def _load_model(self, transformers: Any) -> Any:
        dtype = getattr(self._torch, self._settings.dtype)
        return self._load(transformers.AutoModelForCausalLM, torch_dtype=dtype).eval().to(self._accelerator.device)

    def _load(self, auto_class: Any, **options: Any) -> Any:
        settings = self._settings
        try:
            return auto_class.from_pretrained(
                settings.model, revision=settings.revision, trust_remote_code=settings.trust_remote_code, **options
            )
        except (OSError, ValueError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ModelLoadError(
                f"'{settings.model}' could not be loaded: {reason} Give the folder of a model or a name of the hub in "
                "the parameter 'model', and set HF_TOKEN if it is private"
            ) from error

    def _room_for_prompt(self, config: Any) -> int:
        context = getattr(config, "max_position_embeddings", None)
        if context is None:
            return self._settings.max_input_tokens
        room = int(context) - self._settings.max_new_tokens
        if room < 1:
            raise ModelLoadError(
                f"'max_new_tokens' is {self._settings.max_new_tokens}, which leaves no room for a prompt in the "
                f"{context} tokens that '{self._settings.model}' can hold"
            )
        return min(room, self._settings.max_input_tokens)

    def _length_buckets(self) -> tuple[int, ...]:
        if self._settings.buckets:
            return buckets_up_to(self._max_input_tokens, self._settings.buckets)
        return default_buckets(self._max_input_tokens)

    def _generation_config(self, model: Any, is_static: bool) -> Any:
        settings = self._settings
        config = copy.deepcopy(model.generation_config)
        arguments: dict[str, Any] = {
            "max_new_tokens": settings.max_new_tokens,
            "max_length": None,
            "num_beams": settings.num_beams,
            "do_sample": settings.do_sample,
            "use_cache": True,
            "pad_token_id": self._tokenizer.pad_token_id,
            **(settings.sampling if settings.do_sample else {"temperature": None, "top_k": None, "top_p": None}),
            **(self._accelerator.static_options() if is_static else {}),
        }
        for name, value in arguments.items():
            setattr(config, name, value)
        return config
