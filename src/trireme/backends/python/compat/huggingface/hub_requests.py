"""Requests to a hub that is out of reach fail at once, so that the library takes what it has in its cache.

The hub is looked at when the library is about to ask it for the first time: a model that loads from a folder, or is
told to stay offline, never asks."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from trireme.backends.python.compat import switches
from trireme.backends.python.compat.huggingface import cache_folder, hub_reach
from trireme.backends.python.compat.report import tell_rescue

_SETTINGS = ("ENDPOINT", "HF_HUB_CACHE", "HF_HUB_ETAG_TIMEOUT", "HF_HUB_OFFLINE")
_OF_REPOSITORY = re.compile("/resolve/|/api/(models|datasets|spaces)/")


def look_before_asking(module: ModuleType) -> None:
    """In `huggingface_hub.utils._http`: where its releases have their hand on each request."""
    for name in _SETTINGS:
        getattr(module.constants, name)  # a release without one of them stays as it is
    if hasattr(module, "UniqueRequestIdAdapter"):  # those that use the package requests
        _in_adapter(module, module.UniqueRequestIdAdapter)
    else:
        _in_event_hook(module)


def _in_adapter(module: ModuleType, adapter: Any) -> None:
    send = adapter.send

    @functools.wraps(send)
    def send_if_reachable(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        _check(module, str(request.url), kwargs.get("proxies"))
        return send(self, request, *args, **kwargs)

    adapter.send = send_if_reachable


def _in_event_hook(module: Any) -> None:
    hook = module.hf_request_event_hook
    own_factory = module.default_client_factory

    @functools.wraps(hook)
    def hf_request_event_hook(request: Any) -> Any:
        result = hook(request)
        if module._GLOBAL_CLIENT_FACTORY is own_factory:  # another one may know ways of its own
            _check(module, str(request.url), None)
        return result

    async def async_hf_request_event_hook(request: Any) -> Any:
        return hook(request)  # a look would stop the loop

    module.hf_request_event_hook = hf_request_event_hook
    module.async_hf_request_event_hook = async_hf_request_event_hook


def _check(module: Any, url: str, proxies: Mapping[str, str] | None) -> None:
    """Raises the library's own error where the hub is out of reach."""
    if not switches.may_rescue():
        return
    constants = module.constants
    endpoint = str(constants.ENDPOINT)
    if constants.HF_HUB_OFFLINE or not url.startswith(endpoint) or hub_reach.was_reached(endpoint, proxies):
        return
    # What is not in the cache at all can come from the hub alone, which may be about to come up, as a network does.
    path = urlsplit(url).path
    is_patient = bool(_OF_REPOSITORY.search(path)) and not _is_cached(path, str(constants.HF_HUB_CACHE))
    reason = hub_reach.why_out_of_reach(endpoint, float(constants.HF_HUB_ETAG_TIMEOUT), proxies, is_patient)
    if reason is None:
        return
    tell_rescue(
        "hub out of reach",
        f"the hub '{endpoint}' could not be reached ({reason}): files come from the cache alone, and it is looked at "
        f"again when one is asked for after {hub_reach.AGAIN_S:g} s; HF_HUB_OFFLINE=1 spares the look, HF_ENDPOINT "
        "names another hub, HTTPS_PROXY a way there",
    )
    raise module.OfflineModeIsEnabled(f"cannot reach '{url}': {reason}")


def _is_cached(path: str, cache: str) -> bool:
    """Whether the repository that the path is about is in a cache."""
    places = cache_folder.places()
    for folder in {cache} if places is None else {cache, places.chosen, places.usual}:
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            kind, _, repository = name.partition("--")
            if kind.endswith("s") and repository and f"/{repository.replace('--', '/')}/" in f"{path}/":
                return True
    return False
