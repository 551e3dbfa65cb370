"""A message of several texts is the same text whichever backend gets it."""

from __future__ import annotations

from trireme.backends.transformers.text.text_generation import _of_texts
from trireme.huggingface.message_text import joined_texts
from trireme.llm.tokenizer.messages import plain_messages
from trireme.protocol.openai.requests import text_of

MESSAGE = {"role": "user", "content": [{"type": "text", "text": "Say:"}, {"type": "text", "text": "hello"}]}


def test_every_way_of_a_message_joins_its_texts_alike() -> None:
    expected = joined_texts(["Say:", "hello"])
    assert expected == "Say:\nhello"
    assert text_of(MESSAGE) == expected
    assert plain_messages([MESSAGE], keeps_parts=False)[0]["content"] == expected
    assert _of_texts([MESSAGE])[0]["content"] == expected
