"""What a request asks about: the prompt, and the images and sounds that belong to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trireme.backends.compiled.batching import RequestError
from trireme.backends.transformers.image.reading import read_image
from trireme.backends.transformers.items import Item
from trireme.backends.transformers.sound.audio import Samples, read_audio
from trireme.backends.transformers.text.text_generation import read_messages

_KINDS = {"text": "text", "image": "image", "image_url": "image", "audio": "audio", "input_audio": "audio"}
"""Types of the parts of a message, in the words of several interfaces for chats."""
_CONTENTS = {
    "image": ("image", "base64", "url", "image_url"),
    "audio": ("audio", "base64", "url", "input_audio", "data"),
}
"""Where a part has its content."""
_FETCHED = ("http:", "https:", "ftp:", "file:")


@dataclass(frozen=True, slots=True)
class Material:
    """All that a processor makes the model's inputs of."""

    text: str | None
    """None where the image is all there is."""
    messages: Sequence[Mapping[str, Any]] = ()
    """A conversation instead, whose parts say where images and sounds stand, but do not hold them."""
    images: Sequence[Any] = ()
    sounds: Sequence[Samples] = field(default_factory=tuple)


class MaterialReader:
    """Takes items apart."""

    def __init__(self, is_chat: bool, sound_rate: int | None) -> None:
        self._is_chat = is_chat
        self._sound_rate = sound_rate

    def read(self, item: Item) -> Material:
        """Raises RequestError where something is missing or cannot be read."""
        images, sounds = _images(item), self._sounds(item)
        text = item.text("text_input") if "text_input" in item.inputs else None
        if not self._is_chat:
            if text is None and not images and not sounds:
                raise RequestError("the request has neither a 'text_input' nor an 'image'")
            return Material(text, (), images, sounds)
        if "messages" in item.inputs:
            return self._conversation(read_messages(item.text("messages")), images, sounds)
        parts = [{"type": "image"}] * len(images) + [{"type": "audio"}] * len(sounds)
        content = [*parts, {"type": "text", "text": item.text("text_input")}]
        return Material(None, [{"role": "user", "content": content}], images, sounds)

    def _sounds(self, item: Item) -> list[Samples]:
        given = item.inputs.get("audio")
        return [] if given is None else [self._sound(given, item.options.get("sampling_rate"))]

    def _sound(self, given: Any, rate: int | None = None) -> Samples:
        if self._sound_rate is None:
            raise RequestError("the model does not take sound")
        return read_audio(given, self._sound_rate, rate)

    def _conversation(self, messages: Sequence[Any], images: list[Any], sounds: list[Samples]) -> Material:
        """Images and sounds in the order of the parts; a part without content takes the next of the request's own."""
        own = {"image": iter(images), "audio": iter(sounds)}
        found: dict[str, list[Any]] = {"image": [], "audio": []}
        plain = []
        for message in messages:
            content = []
            for kind, part in _parts(message):
                content.append(
                    {"type": kind} if kind != "text" else {"type": "text", "text": str(part.get("text", ""))}
                )
                if kind != "text":
                    found[kind].append(self._content(kind, part, own[kind]))
            plain.append({**message, "content": content})
        for kind, rest in own.items():
            if next(rest, None) is not None:
                raise RequestError(
                    f"the request has more in its input '{kind}' than 'messages' has parts {{\"type\": \"{kind}\"}} "
                    "without content; add one where it belongs"
                )
        return Material(None, plain, found["image"], found["audio"])

    def _content(self, kind: str, part: Mapping[str, Any], own: Iterator[Any]) -> Any:
        given = next((part[name] for name in _CONTENTS[kind] if part.get(name)), None)
        if isinstance(given, Mapping):  # {"image_url": {"url": ...}}, {"input_audio": {"data": ...}}
            given = given.get("url") or given.get("data")
        if given is None:
            following = next(own, None)
            if following is None:
                raise RequestError(
                    f"'messages' has a part of type {kind} without content, and the request has no further '{kind}'; "
                    f'put base64 or a data: address there: {{"type": "{kind}", "{kind}": "data:...;base64,..."}}'
                )
            return following
        if not isinstance(given, str):
            raise RequestError(f"a part of type {kind} in 'messages' must hold a text, found {type(given).__name__}")
        if given.lstrip().lower().startswith(_FETCHED):
            raise RequestError(
                f"'messages' names an address ('{given[:60]}') for {kind}, and the server fetches nothing; send the "
                "content itself, as a data: address or in base64"
            )
        return read_image(given) if kind == "image" else self._sound(given)


def _images(item: Item) -> list[Any]:
    given = item.inputs.get("image")
    if given is None:
        images = []
    elif isinstance(given, np.ndarray) and given.ndim == 4:  # several of one size
        images = [read_image(array) for array in given]
    else:
        images = [read_image(given)]
    return images + [read_image(text, "images") for text in item.options.get("images", ())]


def _parts(message: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    content = message.get("content")
    if content is None:
        return
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            part = {"type": "text", "text": part}
        kind = _KINDS.get(str(part.get("type"))) if isinstance(part, Mapping) else None
        if kind is None:
            raise RequestError(
                f"a message's content must be a text, or a list of parts of the types {', '.join(_KINDS)}; found "
                f"{str(part)[:80]}"
            )
        yield kind, part
