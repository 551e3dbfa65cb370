"""What a platform's request means: the head of a request is turned into one of the protocol before it is routed."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from trireme.core.errors import InvalidArgumentError
from trireme.frontends.http.head import RequestHead, read_header_length

Translation = Callable[[RequestHead], None]
"""Changes method, path and header length of a head where the platform has its own; InvalidArgumentError refuses it."""


def header(head: RequestHead, name: str) -> str:
    """The value of a header, "" where it is not there; `name` is in lower case."""
    return next((value.strip() for given, value in head.headers if given.lower() == name), "")


def model_path(name: str, version: str = "", action: str = "infer") -> str:
    """The protocol's path for a model."""
    if version and not version.isdecimal():
        raise InvalidArgumentError(f"'{version}' is not the version of a model: it is a whole number")
    place = f"/versions/{version}" if version else ""
    return f"/v2/models/{quote(name, safe='')}{place}/{action}"


def read_binary_type(head: RequestHead, media_type: str) -> None:
    """Takes the length of the JSON from a content type such as `<media type>;json-header-size=<length>`, and has the
    answer say its own in the same way."""
    head.binary_type = media_type.encode()
    given = header(head, "content-type")
    start = media_type + ";json-header-size="
    if media_type in given:
        if not given.startswith(start):
            raise InvalidArgumentError(f"expect MIME type for binary data starts with '{start}', got: {given}")
        read_header_length(head, given.removeprefix(start))
