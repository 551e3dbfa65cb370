"""Options about who may use the server, and what is written down about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trireme.config.options.option import option
from trireme.config.options.values import HEADER_NAME, REQUIRED_TEXT


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
