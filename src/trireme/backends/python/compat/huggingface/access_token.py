"""Access tokens that are not there: an empty one is sent as none, and a variable that a file insists on is empty."""

from __future__ import annotations

import functools
import os
from types import ModuleType
from typing import Any

from trireme.backends.python.compat import switches
from trireme.backends.python.compat.report import add_note, tell_rescue

PRIVATE = "PRIVATE_REPO_TOKEN"
_REFUSALS = (401, 403, 404)
"""What the hub answers about a repository that the asker may not see."""


def take_empty_as_none(module: ModuleType) -> None:
    """In `huggingface_hub.utils._headers`, which would send "Bearer " and fail."""
    choose = module.get_token_to_send

    @functools.wraps(choose)
    def get_token_to_send(token: Any) -> Any:
        if isinstance(token, str) and not token.strip() and switches.may_rescue():
            tell_rescue(
                "empty token",
                "the model passed an empty access token, which was taken as none; set HF_TOKEN if the repository is "
                "private",
            )
            token = None
        return choose(token)

    module.get_token_to_send = get_token_to_send  # type: ignore[attr-defined]


def define_for(error: BaseException) -> bool:
    """Whether the error is that of a file which looked the variable up without asking whether it is there: then it is,
    and empty, which public models and local folders can do with."""
    if not isinstance(error, KeyError) or error.args != (PRIVATE,) or PRIVATE in os.environ:
        return False
    os.environ[PRIVATE] = ""
    tell_rescue(
        "no private token",
        f"the model needs the variable {PRIVATE}, which is not set: it was set to an empty text, and the model was "
        "started again; set it if the repository is private",
    )
    return True


def advise(error: BaseException) -> None:
    """Notes on the failure of a file that insists on the variable that it is not set, and how to set it; where the
    variable is empty, on what the hub has refused."""
    is_lookup = isinstance(error, KeyError) and error.args == (PRIVATE,)
    if is_lookup or (os.environ.get(PRIVATE) == "" and _is_refused(error)):
        add_note(
            error,
            f"the model reads an access token from the variable {PRIVATE}, which is not set. A gated or private "
            f"repository needs it: export {PRIVATE}=hf_... in the environment that the server is started from "
            "(https://huggingface.co/settings/tokens has the token), and start the server again",
        )


def _is_refused(error: BaseException) -> bool:
    """Whether an answer of the hub is behind the error: the libraries raise errors of their own after the hub's."""
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen:
        if getattr(getattr(current, "response", None), "status_code", None) in _REFUSALS:
            return True
        seen.append(current)
        current = current.__cause__ or current.__context__
    return False
