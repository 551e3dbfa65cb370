"""A chat as the backend gets it beside Triton's tensors: messages, and what the model's chat template is given."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trireme.backends.llm.sampling_options import number, read_json
from trireme.backends.served_engine.refusals import InvalidRequestError
from trireme.llm.tokenizer.port import Tokenizer

log = logging.getLogger(__name__)

Message = dict[str, Any]
_RESERVED = ("self", "messages", "conversation", "tools", "add_generation_prompt", "tokenize", "return_dict")
"""What a chat template gets anyway."""
_OF_TRANSFORMERS = (
    "chat_template", "sanitize_control_tokens", "padding", "truncation", "max_length", "return_tensors",
    "return_assistant_tokens_mask", "tokenizer_kwargs",
)  # fmt: skip
"""What transformers does not hand to the template: one of the client's own could hold up the engine without end, and
with the others the result is no list of tokens, or a part of it."""


@dataclass(frozen=True, slots=True)
class Chat:
    """What is to be answered."""

    messages: list[Message]
    has_generation_prompt: bool = True
    """Whether an answer is begun behind them."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Of the template."""

    def tokens(self, tokenizer: Tokenizer) -> list[int]:
        """By the template of our tokenizer, or as one text where it has none."""
        return tokenizer.chat(self.messages, add_generation_prompt=self.has_generation_prompt, **self.values)

    def tokens_of(self, tokenizer: Any) -> list[int]:
        """The same by a tokenizer of transformers, as vLLM has it; raises InvalidRequestError where there is no
        template, or it refuses the messages."""
        if not getattr(tokenizer, "chat_template", None):
            raise InvalidRequestError("'messages' need a chat template, which the model's tokenizer does not have")
        make: Callable[..., Sequence[int]] = tokenizer.apply_chat_template
        jinja2 = importlib.import_module("jinja2")
        try:
            ids = make(
                self.messages,
                add_generation_prompt=self.has_generation_prompt,
                tokenize=True,
                return_dict=False,
                **self.values,
            )
        except jinja2.TemplateSyntaxError:
            raise  # the model's, whatever the messages are
        except jinja2.TemplateError as error:
            raise InvalidRequestError(f"the model's chat template refuses the messages: {error}") from error
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            told = f"{type(error).__name__}: {error}"
            log.info("the chat template failed on messages", exc_info=True)  # which may be the template's own fault
            raise InvalidRequestError(f"the model's chat template fails on the messages: {told}") from error
        return list(ids)


def read_chat(text: str, options: dict[str, Any]) -> Chat:
    """Of the tensor `messages`; takes the template's share of the options out of them. Raises InvalidRequestError."""
    found = read_json("messages", text)
    messages = found if isinstance(found, list) else [found]
    if not messages or not all(isinstance(entry, dict) for entry in messages):
        raise InvalidRequestError("'messages' must be a JSON list of objects, with at least one")
    begun = options.pop("add_generation_prompt", None)
    has_prompt = True if begun is None else bool(number("add_generation_prompt", begun, bool))
    values = options.pop("chat_template_kwargs", None) or {}
    if not isinstance(values, Mapping):
        raise InvalidRequestError("'chat_template_kwargs' must be an object")
    for name in _RESERVED:
        if name in values:
            raise InvalidRequestError(f"'chat_template_kwargs' must not have '{name}', which the template gets anyway")
    for name in _OF_TRANSFORMERS:
        if name in values:
            raise InvalidRequestError(f"'chat_template_kwargs' must not have '{name}': it is no value of the template")
    return Chat(messages, has_prompt, values)
