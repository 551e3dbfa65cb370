"""Whether the hub is asked for a model's files. Where one look finds no hub, this process uses the cache alone."""

from __future__ import annotations

import functools
import logging
import os
from typing import Any

from trireme.backends.compiled.model_load import require
from trireme.backends.python.compat.huggingface.hub_reach import why_out_of_reach
from trireme.backends.python.pb_utils.logger import Logger

_OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_HTTP_LIBRARIES = ("httpx", "httpx2")  # by release of the hub's package


def why_not_asked() -> str | None:
    """Why files come from the cache alone; None where the hub is asked. To be called before transformers is imported,
    some releases of which look then whether they are to ask."""
    constants = hub_constants()
    if any(os.environ.get(name, "").lower() in ("1", "true", "yes", "on") for name in _OFFLINE_VARIABLES):
        return f"the hub '{constants.ENDPOINT}' was not asked, because HF_HUB_OFFLINE is set"
    reason = _unreachable(constants.ENDPOINT, float(constants.HF_HUB_ETAG_TIMEOUT))
    if reason is None:
        return None
    constants.HF_HUB_OFFLINE = True
    return f"the hub '{constants.ENDPOINT}' could not be reached ({reason})"


def hub_constants() -> Any:
    """Where the hub's package keeps its settings; raises ModelLoadError where it is not installed."""
    return require("huggingface_hub.constants", "transformers")


@functools.cache
def _unreachable(endpoint: str, limit_s: float) -> str | None:
    """Why the hub does not answer, found out and told once."""
    for name in _HTTP_LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)  # a line for each request is none that anybody needs
    reason = why_out_of_reach(endpoint, limit_s)
    if reason is not None:
        Logger.log_warn(f"the hub '{endpoint}' could not be reached ({reason}): models come from the cache alone")
    return reason
