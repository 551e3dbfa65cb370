"""What all tokenizers have in common: special tokens, and a chat template in front of `encode`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from trireme.llm.sampling_params import LongPromptError
from trireme.llm.tokenizer.chat_template import ChatTemplate
from trireme.llm.tokenizer.port import Message
from trireme.llm.tokenizer.special_tokens import SpecialTokens

_LOOKED_AT = 16
"""A text with so many characters for each token that is taken is looked at in parts before it is read."""


class TemplatedTokenizer(ABC):
    """The part of the port that does not depend on how text is cut."""

    def __init__(self, special: SpecialTokens, special_ids: frozenset[int], template: ChatTemplate) -> None:
        self.bos_id = special.bos_id
        self.eos_ids = special.eos_ids
        self.special_ids = special_ids
        self.special_tokens: Mapping[str, str] = special.names
        self.template_text = template.source
        self._template = template
        self._most_tokens: int | None = None

    def bound(self, most_tokens: int) -> None:
        """Lets `encode` refuse texts that have more than twice as many tokens before all of them is read."""
        self._most_tokens = most_tokens

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        """The text's tokens."""
        if self._most_tokens is not None:
            self._check_size(text, self._most_tokens)
        return self._encode(text, add_special)

    @abstractmethod
    def _encode(self, text: str, add_special: bool) -> list[int]: ...

    def _check_size(self, text: str, most: int) -> None:
        """Reads larger and larger beginnings. A token may be cut at their end: of twice as many tokens as are taken,
        too many are left without it."""
        size = _LOOKED_AT * most
        while len(text) > size:
            count = len(self._encode(text[:size], False))
            if count > 2 * most:
                raise LongPromptError(
                    f"the prompt has {len(text)} characters, of which the first {size} are {count} tokens, and "
                    f"is longer than the model's context length: the model takes {most}; shorten it"
                )
            size *= 4

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
