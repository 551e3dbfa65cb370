"""The bytes of a file that a request brings, as they are or in base64, since JSON cannot carry bytes."""

from __future__ import annotations

import base64
import binascii

_BLANKS = b" \t\r\n"  # programs that write base64 break its lines


def file_content(given: str | bytes) -> bytes:
    """What base64 stands for, with or without a data: prefix; anything else as it is."""
    content = given.encode() if isinstance(given, str) else bytes(given)
    text = content.partition(b",")[2] if content.startswith(b"data:") else content
    try:
        return base64.b64decode(text.translate(None, _BLANKS), validate=True)
    except (binascii.Error, ValueError):
        return content
