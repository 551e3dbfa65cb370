"""What all tokenizers have in common: special tokens, and a chat template in front of `encode`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from trireme.llm.tokenizer.chat_template import ChatTemplate
from trireme.llm.tokenizer.port import Message
from trireme.llm.tokenizer.special_tokens import SpecialTokens


class TemplatedTokenizer(ABC):
    """The part of the port that does not depend on how text is cut."""

    def __init__(self, special: SpecialTokens, special_ids: frozenset[int], template: ChatTemplate) -> None:
        self.bos_id = special.bos_id
        self.eos_ids = special.eos_ids
        self.special_ids = special_ids
        self.special_tokens: Mapping[str, str] = special.names
        self.template_text = template.source
        self._template = template

    @abstractmethod
    def encode(self, text: str, add_special: bool = True) -> list[int]:
        """The text's tokens."""

    def chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **extra: Any,
    ) -> list[int]:
        """The tokens of a conversation. A template writes special tokens itself, so none are added."""
        text = self._template.render(messages, tools, add_generation_prompt, self.special_tokens, extra)
        return self.encode(text, add_special=not self.template_text)
