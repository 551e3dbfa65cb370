"""Bodies of another protocol than this one, and what their clients can do about it."""

from __future__ import annotations

from typing import Any


def other_protocol(root: Any) -> str:
    """What to do about a body of TensorFlow's protocol, in which Vertex AI's `predict` wraps all that it is given."""
    if not isinstance(root, dict) or "instances" not in root or "inputs" in root:
        return ""
    return "; 'instances' is there instead, as Vertex AI's predict sends it: rawPredict sends a body as it is"
