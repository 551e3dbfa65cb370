"""The refusals of JSON requests beyond `--http-max-input-size`."""

from __future__ import annotations

from typing import Final

from trireme.core.errors import InvalidArgumentError, ServingError

_RAISE_LIMIT: Final = "Use --http-max-input-size to increase the limit."


def document_too_large(size_bytes: int, max_size_bytes: int) -> ServingError:
    """The refusal of a JSON text beyond the limit."""
    return InvalidArgumentError(
        f"request JSON size of {size_bytes} bytes exceeds the maximum allowed input size of {max_size_bytes} bytes. "
        + _RAISE_LIMIT
    )


def input_too_large(name: str, size_bytes: int, max_size_bytes: int) -> ServingError:
    """The refusal of a tensor beyond the limit."""
    return InvalidArgumentError(
        f"JSON input '{name}' has a byte_size ({size_bytes} bytes) that exceeds the maximum allowed value of "
        f"{max_size_bytes} bytes. {_RAISE_LIMIT}"
    )
