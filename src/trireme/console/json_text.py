"""The console's data as JSON, whatever clients and folders have put into it."""

from __future__ import annotations

from typing import Any

import orjson


def encode(value: Any) -> bytes:
    """Names that came in as bytes of no encoding get marks in their place: one of them must not hide the rest."""
    try:
        return orjson.dumps(value, default=str)
    except orjson.JSONEncodeError:
        return orjson.dumps(_readable(value), default=str)


def _readable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_readable(name): _readable(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_readable(inner) for inner in value]
    return value
