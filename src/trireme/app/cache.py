"""The response cache and the rate limiter that the server's options ask for."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping

from trireme.config.options.server import ServerOptions
from trireme.core.errors import InvalidArgumentError
from trireme.scheduling.cache.front import ResponseCacheFront
from trireme.scheduling.cache.local import LocalResponseCache
from trireme.scheduling.cache.redis import DEFAULT_POOL_SIZE, DEFAULT_TIMEOUT_MS, RedisOptions, RedisResponseCache
from trireme.scheduling.rate_limiter import RateLimiter

REDIS_SETTINGS = (
    "host",
    "port",
    "user",
    "password",
    "db",
    "connect_timeout",
    "socket_timeout",
    "wait_timeout",
    "pool_size",
)
REDIS_USER, REDIS_PASSWORD = "TRITONCACHE_REDIS_USERNAME", "TRITONCACHE_REDIS_PASSWORD"
"""Environment variables that keep the secret out of the list of processes."""


def response_cache(options: ServerOptions, epoch: Callable[[], int]) -> ResponseCacheFront | None:
    """The cache of `--cache-config`; raises ServingError for one that cannot be."""
    settings = options.cache_config
    if settings is None:
        return None
    if settings.name == "local":
        return ResponseCacheFront(_local(settings.settings), epoch)
    if settings.name == "redis":
        return ResponseCacheFront(RedisResponseCache(redis_options(settings.settings, os.environ)), epoch)
    raise InvalidArgumentError(
        f"unable to find 'libtritoncache_{settings.name}.so' for cache. Searched: {options.cache_directory}; "
        "the caches of this server are built in: 'local' and 'redis'"
    )


def rate_limiter(options: ServerOptions) -> RateLimiter | None:
    """The limiter of `--rate-limit`; None where it is off."""
    return None if options.rate_limit == "off" else RateLimiter(options.rate_limit_resource)


def redis_options(settings: Mapping[str, str], environment: Mapping[str, str]) -> RedisOptions:
    """One flag per setting, as Triton has it, or several behind each other: `redis,host=a,port=6379`."""
    given = _split(settings)
    _check_names(given)
    if "host" not in given or "port" not in given:
        raise InvalidArgumentError(
            "the redis cache needs a host and a port: --cache-config=redis,host=<name> --cache-config=redis,port=<n>"
        )
    return RedisOptions(
        host=given["host"],
        port=_number(given, "port", 0),
        user=given.get("user", environment.get(REDIS_USER)),
        password=given.get("password", environment.get(REDIS_PASSWORD)),
        db=_number(given, "db", 0),
        connect_timeout_ms=_number(given, "connect_timeout", DEFAULT_TIMEOUT_MS) or DEFAULT_TIMEOUT_MS,
        socket_timeout_ms=_number(given, "socket_timeout", DEFAULT_TIMEOUT_MS) or DEFAULT_TIMEOUT_MS,
        wait_timeout_ms=_number(given, "wait_timeout", DEFAULT_TIMEOUT_MS) or DEFAULT_TIMEOUT_MS,
        pool_size=_number(given, "pool_size", DEFAULT_POOL_SIZE) or 1,
    )


def _local(settings: Mapping[str, str]) -> LocalResponseCache:
    size_bytes = _number(settings, "size", 0)
    if not size_bytes:
        raise InvalidArgumentError(
            "Failed to initialize LocalCache: config didn't contain a valid 'size' field. "
            "Write --cache-config=local,size=<bytes>"
        )
    return LocalResponseCache(size_bytes)


def _split(settings: Mapping[str, str]) -> dict[str, str]:
    """Takes apart what follows a value with a comma and the name of a setting."""
    following = re.compile(rf",({'|'.join(REDIS_SETTINGS)})=")
    found: dict[str, str] = {}
    for name, value in settings.items():
        first, *rest = following.split(value)
        found[name] = first
        found.update(zip(rest[::2], rest[1::2], strict=True))
    return found


def _check_names(given: Mapping[str, str]) -> None:
    for name in given:
        if name not in REDIS_SETTINGS:
            raise InvalidArgumentError(
                f"--cache-config=redis has no setting '{name}'; there are {', '.join(REDIS_SETTINGS)}"
            )


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()):
        raise InvalidArgumentError(f"the setting '{name}' of --cache-config is a whole number. Got {text}")
    return int(text)
