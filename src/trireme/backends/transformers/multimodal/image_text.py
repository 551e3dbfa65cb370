"""Images with prompts, or alone, to what a model writes about them; conversations with images to the next message."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trireme.backends.compiled.batching import LongPromptError
from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.transformers.items import Item, Outputs, text_array
from trireme.backends.transformers.loading import Loaded
from trireme.backends.transformers.multimodal.image_text_batch import InputBatches
from trireme.backends.transformers.multimodal.image_text_material import MaterialReader
from trireme.backends.transformers.multimodal.image_text_processor import PromptProcessor
from trireme.backends.transformers.text.generated_text import PromptPrefix
from trireme.backends.transformers.text.generation import Generator, Prompt
from trireme.backends.transformers.text.text_batch import TextBatches, TokenIds


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt, and the tensors that belong to it."""

    prompt: Prompt
    tensors: Mapping[str, Any]


class ImageTextToText:
    """A model that looks and writes."""

    def __init__(self, loaded: Loaded) -> None:
        if loaded.tokenizer is None:  # the files have no processor, and what was found is the tokenizer
            loaded = replace(loaded, tokenizer=loaded.processor)
        if not loaded.model.can_generate():
            raise ModelLoadError(
                f"model '{loaded.settings.name}' ('{loaded.source}') is a {type(loaded.model).__name__}, which does "
                f"not write its answers; the task {loaded.task} needs a model that does"
            )
        self._is_chat = loaded.settings.is_chat
        self._processor = PromptProcessor(loaded)
        self._reader = MaterialReader(self._is_chat, self._processor.sound_rate)
        self._texts = TextBatches(loaded, is_left_padded=True)
        self._generator = Generator(loaded, self._texts)
        self._batches = InputBatches(loaded, self._texts)

    def prepare(self, item: Item) -> Asked:
        """Takes `image` or `images`, and `text_input`, or in a chat `messages`."""
        if item.emit is not None and self._is_full(item):
            item = replace(item, emit=PromptPrefix(item.text("text_input"), item.emit))
        inputs = self._processor.inputs(self._reader.read(item))
        ids, tensors = self._batches.parted(inputs)
        return Asked(self._generator.prompt(item, *self._fitted(item, ids, tensors)), tensors)

    def key(self, prepared: Asked) -> Hashable:
        """Prompts with equal settings whose images come out in one shape."""
        return (self._generator.key(prepared.prompt), self._batches.key(prepared.prompt.ids, prepared.tensors))

    def run(self, prepared: Sequence[Asked]) -> list[Outputs]:
        """The new text of each, after the prompt where that is asked for."""
        prompts = [asked.prompt for asked in prepared]
        batch = self._batches.joined([prompt.ids for prompt in prompts], [asked.tensors for asked in prepared])
        texts = self._generator.generate(prompts, batch)
        return [
            {"text_output": text_array([self._prefix(prompt.item) + text])}
            for prompt, text in zip(prompts, texts, strict=True)
        ]

    def _fitted(self, item: Item, ids: TokenIds, tensors: Mapping[str, Any]) -> tuple[TokenIds, int | None]:
        """The ids, and how many tokens there is room for after them."""
        limit = self._texts.token_limit
        if limit is None:
            return ids, None
        if self._batches.is_encoded:
            return ids, limit - 1
        count = len(ids.get("input_ids", ()))
        if count < limit:
            return ids, limit - count
        if not item.options.get("truncation") or tensors:
            hint = (
                "a prompt with images cannot be cut" if tensors else "or set 'truncation' to have its beginning cut off"
            )
            raise LongPromptError(
                f"the prompt has {count} tokens with those of its images, and the model's context has room for {limit} "
                f"with the answer; shorten it, {hint}"
            )
        answer_room = min(self._generator.wanted_tokens(item.options), limit // 2)
        return {name: row[count - (limit - answer_room) :] for name, row in ids.items()}, answer_room

    def _prefix(self, item: Item) -> str:
        return item.text("text_input") if self._is_full(item) else ""

    def _is_full(self, item: Item) -> bool:
        return bool(item.options.get("return_full_text")) and not self._is_chat and "text_input" in item.inputs
