"""Options about who may use the server, and what is written down about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trireme.config.options.option import option
from trireme.config.options.values import HEADER_NAME, REQUIRED_TEXT, choice


@dataclass(frozen=True)
class AccessOptions:
    """Keys, and what is known of those who use them."""

    TITLE: ClassVar[str] = "Access"

    api_keys: str | None = option(
        None,
        REQUIRED_TEXT,
        "A file with the keys that clients need, on HTTP, gRPC and the metrics port; trireme keys writes it, and it is "
        "read again when it changes.",
        is_extension=True,
    )
    api_key_header: str = option(
        "",
        HEADER_NAME,
        "A header that may carry the key in place of Authorization: Bearer.",
        is_extension=True,
    )
    access_log: str | None = option(
        None,
        REQUIRED_TEXT,
        "A file that gets a line for every request, - is standard output; it is opened anew when it was moved away.",
        is_extension=True,
    )
    access_log_format: str = option(
        "json",
        choice("json", "common"),
        "The form of its lines: json, or the common log format with the model, the bytes received and the seconds "
        "behind it.",
        is_extension=True,
    )
