"""Access tokens: none is as good as an empty one, wherever a model reads or passes it."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

from trireme.backends.python.compat.report import tell_once

PRIVATE = "PRIVATE_REPO_TOKEN"


def define_private_token() -> None:
    """Lets a model look the variable up where nobody has set it: public models and local folders need no token."""
    os.environ.setdefault(PRIVATE, "")


def take_empty_as_none(module: ModuleType) -> None:
    """In `huggingface_hub.utils._headers`, which would send "Bearer " and fail."""
    choose = module.get_token_to_send

    def get_token_to_send(token: Any) -> Any:
        return choose(none_if_empty(token))

    module.get_token_to_send = get_token_to_send  # type: ignore[attr-defined]


def none_if_empty(token: Any) -> Any:
    """The token, or None where it is an empty text."""
    if not isinstance(token, str) or token.strip():
        return token
    tell_once(
        "empty token",
        f"the model passed an empty access token, which was taken as none; set {PRIVATE} if the repository is private",
    )
    return None
