"""Form data in several parts, as `curl -F` and browsers send it: from a body to its fields."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trireme.core.errors import InvalidArgumentError

MEDIA_TYPE = "multipart/form-data"
MAX_PARTS = 1024
MAX_PART_HEAD_BYTES = 8 << 10
_MAX_BOUNDARY_BYTES = 70  # of RFC 2046
_PARAMETER = re.compile(r';\s*([\w!#$%&\'*+.^`|~-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;\s]*))')


@dataclass(frozen=True, slots=True)
class FormPart:
    """One field of a form."""

    name: str
    file_name: str | None
    """None for a field that is no file."""
    media_type: str
    """In small letters; empty where the client says nothing."""
    content: memoryview
    """A view of the body."""

    @property
    def is_file(self) -> bool:
        """Whether the client sends it as a file, or as something that is no text."""
        return self.file_name is not None or self.media_type not in ("", "text/plain", "application/json")


def boundary_of(content_type: str) -> bytes | None:
    """What parts the fields of a form; None where the header is not that of a form, empty where it lacks one."""
    if content_type.partition(";")[0].strip().lower() != MEDIA_TYPE:
        return None
    return _parameters(content_type).get("boundary", "").encode("utf-8", "surrogateescape")


def parse_form(body: bytes, boundary: bytes) -> list[FormPart]:
    """The fields in their order; raises InvalidArgumentError for what is no form."""
    if not 0 < len(boundary) <= _MAX_BOUNDARY_BYTES:
        raise InvalidArgumentError("the Content-Type of the form has no boundary of 1 to 70 characters")
    delimiter = b"--" + boundary
    view = memoryview(body)
    position = 0 if body.startswith(delimiter) else body.find(b"\r\n" + delimiter) + 2
    if position == 1:
        raise InvalidArgumentError("the form does not begin with the boundary that its Content-Type names")
    parts: list[FormPart] = []
    while True:
        position += len(delimiter)
        if body.startswith(b"--", position):
            return parts
        if len(parts) == MAX_PARTS:
            raise InvalidArgumentError(f"the form has more than {MAX_PARTS} fields")
        start = body.find(b"\r\n\r\n", position, position + MAX_PART_HEAD_BYTES)
        if start < 0:
            raise InvalidArgumentError(f"field {len(parts) + 1} of the form has no end of its headers")
        end = body.find(b"\r\n" + delimiter, start + 2)
        if end < 0:
            raise InvalidArgumentError(f"field {len(parts) + 1} of the form is cut short: no boundary follows it")
        parts.append(_part(body[position:start], view[start + 4 : max(end, start + 4)], len(parts) + 1))
        position = end + 2


def _part(head: bytes, content: memoryview, number: int) -> FormPart:
    headers = {}
    for line in head.decode("utf-8", "replace").split("\r\n"):
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    disposition = headers.get("content-disposition", "")
    parameters = _parameters(disposition)
    if not disposition.lower().startswith("form-data") or "name" not in parameters:
        raise InvalidArgumentError(f"field {number} of the form has no Content-Disposition with a name")
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    return FormPart(parameters["name"], parameters.get("filename"), media_type, content)


def _parameters(value: str) -> dict[str, str]:
    """Those behind the semicolons; quotes in names come with a backslash, or as browsers write them."""
    found: dict[str, str] = {}
    for name, quoted, plain in _PARAMETER.findall(value):
        text = re.sub(r"\\(.)", r"\1", quoted) if quoted else plain
        found.setdefault(name.lower(), text.replace("%22", '"'))
    return found
