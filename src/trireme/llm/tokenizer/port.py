"""What the engine asks of a tokenizer, whoever made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

DOWNLOAD_AGAIN = "download the tokenizer's files again"
Message = Mapping[str, Any]
"""One turn of a conversation: `role`, `content`, and what else the model's template knows."""


class TokenizerError(ValueError):
    """A tokenizer that cannot be read or used; the text says why and what to do."""


class ChatError(ValueError):
    """Messages that cannot be put into the model's chat format; the text says which and why."""


class Tokenizer(Protocol):
    """Immutable after loading; every method may be called from any thread."""

    @property
    def vocab_size(self) -> int:
        """How many ids there are, with added tokens; the model's own table may be larger."""
        ...

    @property
    def bos_id(self) -> int | None:
        """The token that texts begin with; None where there is none."""
        ...

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """The tokens that end an answer, the tokenizer's own first; empty where there are none."""
        ...

    @property
    def special_ids(self) -> frozenset[int]:
        """The tokens that `decode` leaves out where it is asked to."""
        ...

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """By their names in `tokenizer_config.json` (`bos_token`, `eos_token`, ...): the texts of special tokens."""
        ...

    def bound(self, most_tokens: int) -> None:
        """Called once, before others use it: from then on `encode` and `chat` raise LongPromptError for texts with more
        than twice as many tokens, and soon."""
        ...

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        """The text's tokens. Special tokens that are written out in the text are recognised.

        `add_special` puts before and behind what the tokenizer puts around every text.
        """
        ...

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """The text of the tokens; bytes that are no UTF-8 become U+FFFD, ids that do not exist are left out."""
        ...

    def token_text(self, token: int) -> str:
        """The text of one token as it stands inside a sentence, with its space; special tokens are written out."""
        ...

    def token_bytes(self, token: int) -> bytes | None:
        """What the token adds to the text, where that does not depend on its neighbours; None where it may."""
        ...

    def piece_bytes(self, token: int) -> bytes:
        """What the token writes inside a text, with its space; of special tokens their names; b"" of no token."""
        ...

    @property
    def template_text(self) -> str:
        """The chat template as the folder has it, the one for tools where there are several; "": there is none."""
        ...

    def chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **extra: Any,
    ) -> list[int]:
        """The tokens of a conversation in the model's format; `extra` goes to its template.

        Raises ChatError where the messages do not fit it.
        """
        ...
