"""Which headers may become parameters of a request, where `--http-header-forward-pattern` or gRPC's picks them."""

from __future__ import annotations

_RESERVED = frozenset(
    ("sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output")
)
_RESERVED_PREFIX = "triton_"


def is_reserved(name: str) -> bool:
    """Whether a parameter of this name means something to the server."""
    return name in _RESERVED or name.startswith(_RESERVED_PREFIX)


def refusal_of(name: str) -> str:
    """What a client is told whose header would become such a parameter."""
    return f"Header '{name}' is reserved for Triton usage and cannot be forwarded."
