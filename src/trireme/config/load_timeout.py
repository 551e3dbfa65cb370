"""How long a model may take to load: by the parameter `trireme_load_timeout` of its configuration, or by a flag."""

from __future__ import annotations

import math

from trireme.config.message import ConfigMessage
from trireme.core.errors import InvalidArgumentError, UnavailableError

NAME = "trireme_load_timeout"
FLAG = "--model-load-timeout"


def load_timeout_s(message: ConfigMessage, default_s: float) -> float | None:
    """None where there is no limit. Raises InvalidArgumentError for a value that is no time."""
    if NAME not in message.parameters:
        return default_s or None
    text = message.parameters[NAME].string_value
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise InvalidArgumentError(
            f"parameter '{NAME}' of model '{message.name}' must be seconds, 0 or more, found '{text}'"
        )
    return seconds or None


def took_too_long(limit_s: float) -> UnavailableError:
    """For a load that was ended because its time was over."""
    return UnavailableError(
        f"it was not ready within {limit_s:g} s and was ended; {FLAG}, or the parameter {NAME} of its configuration, "
        "gives it more time"
    )
