"""The images in the messages of a chat, for a model that takes them beside its prompt."""

from __future__ import annotations

from typing import Any, Final

from trireme.protocol.openai.errors import FieldError
from trireme.protocol.openai.requests import Message, other_parts

_TYPES: Final = ("image_url", "input_image", "image")


def images_of(messages: list[Message], takes_images: bool) -> list[str]:
    """As data: addresses, in their order; raises FieldError for parts that the model cannot take."""
    found = []
    for position, message in enumerate(messages):
        for place, part in other_parts(message):
            where = f"messages[{position}].content"
            if not takes_images:
                raise FieldError(where, "This model takes texts only.", "unsupported_content")
            where += f"[{place}]"
            if part["type"] not in _TYPES:
                raise FieldError(
                    where, f"This model takes texts and images, and '{where}' is neither.", "unsupported_content"
                )
            found.append(_image(where, part))
    return found


def _image(where: str, part: dict[str, Any]) -> str:
    given = part.get("image_url") or part.get("image")
    if isinstance(given, dict):
        given = given.get("url")
    if not isinstance(given, str) or not given:
        raise FieldError(f"{where}.image_url", f"'{where}.image_url.url' has to be a data: address.", "invalid_type")
    if given[:5].lower() != "data:":
        raise FieldError(
            f"{where}.image_url",
            f"'{where}.image_url.url' is no data: address ('{given[:60]}'), and the server fetches nothing; send the "
            "image itself, as data:image/png;base64,...",
            "unsupported_content",
        )
    return given
