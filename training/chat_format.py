"""The chat format of the shipped model, said once for its data, its tokenizer and its template.

Every turn is `<|im_start|>role`, a line break, the text, `<|im_end|>` and a line break; documents begin with
`<|endoftext|>`.
"""

from __future__ import annotations

from dataclasses import dataclass

BEGIN = "<|endoftext|>"
TURN_BEGIN = "<|im_start|>"
TURN_END = "<|im_end|>"
SPECIAL_TOKENS = (BEGIN, TURN_BEGIN, TURN_END)
"""Their ids are their places here."""

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Turn:
    role: str
    content: str


def render(turns: list[Turn]) -> list[tuple[str, bool]]:
    """The conversation's text in pieces, each with whether the model is to learn to write it."""
    pieces = [(BEGIN, False)]
    for turn in turns:
        pieces.append((f"{TURN_BEGIN}{turn.role}\n", False))
        pieces.append((f"{turn.content}{TURN_END}", turn.role == "assistant"))
        pieces.append(("\n", False))
    return pieces
