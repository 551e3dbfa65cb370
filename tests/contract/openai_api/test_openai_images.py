"""OpenAI's client and models that look at images."""

from __future__ import annotations

import base64
import io
from typing import Any

import openai
import pytest
from PIL import Image


def picture(colour: str, kind: str = "PNG") -> str:
    file = io.BytesIO()
    Image.new("RGB", (40, 30), colour).save(file, kind)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"


def seen(*addresses: str) -> Any:
    """Messages that ask about images."""
    parts = [{"type": "image_url", "image_url": {"url": address, "detail": "low"}} for address in addresses]
    return [{"role": "user", "content": [{"type": "text", "text": "what is this"}, *parts]}]


def written(client: openai.OpenAI, model: str, *addresses: str, **wishes: Any) -> str:
    answer = client.chat.completions.create(model=model, messages=seen(*addresses), max_tokens=6, **wishes)
    return answer.choices[0].message.content or ""


@pytest.mark.parametrize("model", ["eyes", "captions"])
def test_what_is_written_depends_on_the_image(client: openai.OpenAI, model: str) -> None:
    red, blue = (written(client, model, picture(colour)) for colour in ("red", "blue"))
    assert red
    assert blue
    assert red == written(client, model, picture("red"))
    if model == "eyes":  # whose backend reads the messages itself
        assert red == written(client, model, picture("red").partition(",")[2])
        assert red != blue
        assert written(client, model, picture("red"), picture("blue")) not in (red, blue)


def test_an_answer_about_an_image_is_streamed(client: openai.OpenAI) -> None:
    whole = written(client, "eyes", picture("green", "JPEG"))
    stream = client.chat.completions.create(
        model="eyes", messages=seen(picture("green", "JPEG")), max_tokens=6, stream=True
    )
    pieces = [chunk.choices[0].delta.content or "" for chunk in stream]
    assert "".join(pieces) == whole
    assert len([piece for piece in pieces if piece]) > 1


def test_the_words_beside_an_image_are_counted(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="eyes", messages=seen(picture("red")), max_tokens=2)
    assert answer.usage
    assert answer.usage.prompt_tokens == 3


@pytest.mark.parametrize("model", ["eyes", "captions"])
@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("https://example.org/a.png", "fetches nothing"),
        ("file:///etc/passwd", "fetches nothing"),
        ("data:image/png;base64,AAAA", "could not be read as an image"),
        ("", "data: address"),
    ],
)
def test_an_image_that_cannot_be_had_is_refused(client: openai.OpenAI, model: str, address: str, words: str) -> None:
    with pytest.raises(openai.BadRequestError, match=words):
        written(client, model, address)


def test_a_model_that_needs_an_image_says_so(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="this model writes about an image alone"):
        client.chat.completions.create(model="captions", messages=[{"role": "user", "content": "hello"}])
