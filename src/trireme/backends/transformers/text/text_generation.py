"""Prompts to their continuations, and conversations to the next message."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

from trireme.backends.compiled.batching import LongPromptError, RequestError
from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.transformers.items import Item, Outputs, text_array
from trireme.backends.transformers.loading import Loaded
from trireme.backends.transformers.text.generated_text import PromptPrefix
from trireme.backends.transformers.text.generation import Generator, Prompt
from trireme.backends.transformers.text.text_batch import TextBatches
from trireme.core.reading.json_levels import read_json
from trireme.huggingface.message_text import joined_texts


class TextGeneration:
    """A causal language model."""

    def __init__(self, loaded: Loaded) -> None:
        self._tokenizer = loaded.tokenizer
        self._is_chat = loaded.settings.is_chat
        if self._is_chat and not getattr(loaded.tokenizer, "chat_template", None):
            raise ModelLoadError(
                f"the tokenizer of model '{loaded.settings.name}' ('{loaded.source}') has no chat template, which the "
                "parameter 'chat' needs; use a model that was made for conversations, or leave 'chat' out"
            )
        self._texts = TextBatches(loaded, is_left_padded=True)
        self._generator = Generator(loaded, self._texts)

    def prepare(self, item: Item) -> Prompt:
        """Takes `text_input`, or in a chat `messages`."""
        text = self._conversation(item) if self._is_chat else item.text("text_input")
        if item.emit is not None and self._is_full(item):
            item = replace(item, emit=PromptPrefix(text, item.emit))
        ids = self._tokenizer(text, add_special_tokens=not self._is_chat)["input_ids"]
        limit = self._texts.token_limit
        if limit is not None and len(ids) >= limit:
            if not item.options.get("truncation"):
                raise LongPromptError(
                    f"the prompt has {len(ids)} tokens, and the model's context has room for {limit} with the answer; "
                    "shorten it, or set the parameter 'truncation' to true to have its beginning cut off"
                )
            answer_room = min(self._generator.wanted_tokens(item.options), limit // 2)
            ids = ids[len(ids) - (limit - answer_room) :]
        if not ids:
            raise RequestError("the prompt is empty: it has no tokens to continue")
        room = None if limit is None else limit - len(ids)
        return self._generator.prompt(item, {"input_ids": ids, "attention_mask": [1] * len(ids)}, room)

    def key(self, prepared: Prompt) -> Hashable:
        """Prompts with equal settings; their limits and stop texts may differ."""
        return self._generator.key(prepared)

    def run(self, prepared: Sequence[Prompt]) -> list[Outputs]:
        """The new text of each prompt, after the prompt where that is asked for."""
        texts = self._generator.generate(prepared, self._texts.pad([prompt.ids for prompt in prepared]))
        return [
            {"text_output": text_array([self._prefix(prompt.item) + text])}
            for prompt, text in zip(prepared, texts, strict=True)
        ]

    def _prefix(self, item: Item) -> str:
        return item.text("text_input") if self._is_full(item) else ""

    def _is_full(self, item: Item) -> bool:
        return bool(item.options.get("return_full_text")) and not self._is_chat

    def _conversation(self, item: Item) -> str:
        if "messages" in item.inputs:
            messages = _of_texts(read_messages(item.text("messages")))
        else:
            messages = [{"role": "user", "content": item.text("text_input")}]
        try:
            return str(self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
        except Exception as error:  # templates raise for orders of roles that they do not know
            raise RequestError(f"the model's chat template does not take these messages: {error}") from error


def read_messages(text: str) -> list[Any]:
    """The conversation of the input `messages`; raises RequestError where it is none."""
    expected = 'a JSON list such as [{"role": "user", "content": "Hello"}]'
    try:
        messages = read_json(text)
    except ValueError as error:
        raise RequestError(f"input 'messages' must be {expected}; it is not JSON: {error}") from None
    if not isinstance(messages, list) or not messages or not all(map(_is_message, messages)):
        raise RequestError(f"input 'messages' must be {expected}")
    return messages


def _of_texts(messages: Sequence[Any]) -> list[Any]:
    """The messages with contents of several texts as one, which every template can write."""
    return [
        {**message, "content": _joined(number, message["content"])}
        if isinstance(message.get("content"), list)
        else message
        for number, message in enumerate(messages)
    ]


def _joined(number: int, parts: Sequence[Any]) -> str:
    found = []
    for part in parts:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise RequestError(f"message {number} has a part of the type '{kind}', and the model takes texts only")
        found.append(part["text"])
    return joined_texts(found)


def _is_message(entry: Any) -> bool:
    return isinstance(entry, dict) and "role" in entry
