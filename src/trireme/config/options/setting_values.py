"""Options that carry settings of their own: restricted APIs, backends, caches, metrics, resources, host policies."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trireme.config.compat_words import parse_words
from trireme.config.options.option import OptionError, ValueKind
from trireme.config.options.values import parse_bool, parse_int

API_CATEGORIES = (
    "health",
    "metadata",
    "inference",
    "shared-memory",
    "model-config",
    "model-repository",
    "statistics",
    "trace",
    "logging",
    "recording",
)
"""What `--http-restricted-api` and `--grpc-restricted-protocol` can lock, and what keys can be given."""

METRICS_SETTING_NAMES = ("counter_latencies", "histogram_latencies", "summary_latencies", "summary_quantiles")

DEFAULT_QUANTILES = ((0.5, 0.05), (0.9, 0.01), (0.95, 0.001), (0.99, 0.001), (0.999, 0.001))


@dataclass(frozen=True, slots=True)
class RestrictedApi:
    """The key that opens one category of the API."""

    header: str
    """Of HTTP as it stands; gRPC puts `triton-grpc-protocol-` before it."""
    value: str


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """`--metrics-config`: which latency families the metrics page has."""

    counter_latencies: bool = True
    histogram_latencies: bool = False
    summary_latencies: bool = False
    summary_quantiles: tuple[tuple[float, float], ...] = DEFAULT_QUANTILES
    """Pairs of quantile and allowed error."""
    unknown: tuple[str, ...] = ()
    """Names of settings nobody knows; Triton takes them in silence, we warn."""


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """`--cache-config`: the one response cache and its settings."""

    name: str
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RateLimitResource:
    """`--rate-limit-resource`: so many units of a resource, on one device or on each."""

    name: str
    """Lower case; names are compared without case."""
    count: int
    device: int | None = None


def _restricted(noun: str) -> ValueKind:
    def read(text: str, flag: str) -> list[tuple[str, RestrictedApi]]:
        names, colon, key = text.partition(":")
        header, equals, value = key.partition("=")
        if not (names and colon and header and equals and value):
            raise OptionError(f"--{flag} option format is '<config name>:<setting>=<value>'. Got {text}", flag)
        for name in names.split(","):
            if name not in API_CATEGORIES:
                raise OptionError(f"unknown restricted {noun} '{name}' ", flag)
        return [(name, RestrictedApi(header, value)) for name in names.split(",")]

    def gather(values: Sequence[list[tuple[str, RestrictedApi]]], flag: str) -> dict[str, RestrictedApi]:
        locked: dict[str, RestrictedApi] = {}
        for name, key in (entry for group in values for entry in group):
            if name in locked:
                raise OptionError(f"restricted {noun} '{name}' can not be specified in multiple config groups", flag)
            locked[name] = key
        return locked

    return ValueKind("<string>:<string>=<string>", read, gather)


def _read_named_setting(text: str, flag: str, owner: str) -> tuple[str, str, str]:
    """`<owner>,<setting>=<value>`; the owner is "" where there is no comma before the equals sign."""
    head, equals, value = text.partition("=")
    name, comma, setting = head.rpartition(",")
    if not (setting and equals and value):
        raise OptionError(f"--{flag} option format is '<{owner} name>,<setting>=<value>'. Got {text}", flag)
    if comma and not name:
        raise OptionError(
            f"No {owner} specified. --{flag} option format is <{owner} name>,<setting>=<value>"
            f"{' or <setting>=<value>' if owner == 'backend' else ''}. Got {text}",
            flag,
        )
    return name, setting, value


def _read_backend(text: str, flag: str) -> tuple[str, str, str]:
    return _read_named_setting(text, flag, "backend")


def _gather_by_name(values: Sequence[tuple[str, str, str]], flag: str) -> dict[str, dict[str, str]]:
    gathered: dict[str, dict[str, str]] = {}
    for name, setting, value in values:
        gathered.setdefault(name, {})[setting] = value
    return gathered


def _read_cache(text: str, flag: str) -> tuple[str, str, str]:
    if "," not in text or text.startswith(","):
        raise OptionError(
            f"No cache specified. --{flag} option format is <cache name>,<setting>=<value>. Got {text}", flag
        )
    return _read_named_setting(text, flag, "cache")


def _gather_cache(values: Sequence[tuple[str, str, str]], flag: str) -> CacheSettings | None:
    by_name = _gather_by_name(values, flag)
    if len(by_name) > 1:
        raise OptionError(
            "error: creating server: Invalid argument - found multiple cache configurations, "
            "but only a single cache is currently supported",
            shows_usage=False,
        )
    for name, settings in by_name.items():
        if name == "local" and "size" in settings:
            parse_int(settings["size"], flag)
        return CacheSettings(name, settings)
    return None


_HOST_POLICY_SETTINGS = ("numa-node", "cpu-cores")


def _read_host_policy(text: str, flag: str) -> tuple[str, str, str]:
    name, setting, value = _read_named_setting(text, flag, "policy")
    if not name:
        raise OptionError(f"--{flag} option format is '<policy name>,<setting>=<value>'. Got {text}", flag)
    if setting not in _HOST_POLICY_SETTINGS:
        raise OptionError(
            f"Unsupported host policy setting '{setting}' is specified, "
            "supported settings are 'numa-node', 'cpu-cores'",
            flag,
        )
    return name, setting, value


def _read_metrics_setting(text: str, flag: str) -> tuple[str, Any]:
    setting, equals, value = text.partition("=")
    if not (setting and equals and value) or "," in setting:
        raise OptionError(f"--{flag} option format is <setting>=<value>. Got {text}", flag)
    if setting == "summary_quantiles":
        return setting, _quantiles(value, flag)
    if setting in METRICS_SETTING_NAMES:
        return setting, parse_bool(value, flag)
    return setting, value


_DECIMAL = r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
_PAIR = re.compile(f"{_DECIMAL}[^:]*:{_DECIMAL}")


def _quantiles(text: str, flag: str) -> tuple[tuple[float, float], ...]:
    """Pairs with commas between them, as Triton reads them: behind a number nothing counts."""
    pairs = []
    for entry in text.strip("\"'").removesuffix(",").split(","):
        match = _PAIR.match(entry)
        if match is None:
            raise OptionError(f"summary_quantiles are pairs '<quantile>:<error>', as in 0.5:0.05. Got {entry}", flag)
        pair = float(match[1]), float(match[2])
        if not all(0.0 <= number <= 1.0 for number in pair):
            raise OptionError(f"a quantile and its error are between 0 and 1. Got {entry}", flag)
        pairs.append(pair)
    return tuple(pairs)


def _gather_metrics(values: Sequence[tuple[str, Any]], flag: str) -> MetricsSettings:
    known = {name: value for name, value in values if name in METRICS_SETTING_NAMES}
    unknown = tuple(name for name, _ in values if name not in METRICS_SETTING_NAMES)
    return MetricsSettings(**known, unknown=unknown)


def _read_resource(text: str, flag: str) -> RateLimitResource:
    parts = text.split(":")
    if len(parts) not in (2, 3):
        raise OptionError(
            f"--{flag} option format is '<resource_name>:<count>:<device>' or '<resource_name>:<count>'. Got {text}",
            flag,
        )
    device = parse_int(parts[2], flag) if len(parts) == 3 else None
    return RateLimitResource(parts[0].lower(), parse_int(parts[1], flag), device)


def _gather_resources(values: Sequence[RateLimitResource], flag: str) -> tuple[RateLimitResource, ...]:
    return tuple(values)


def _read_compat(text: str, flag: str) -> tuple[str, ...]:
    try:
        return parse_words(text)
    except ValueError as error:
        raise OptionError(str(error), flag) from None


RESTRICTED_API = _restricted("api")
RESTRICTED_PROTOCOL = _restricted("protocol")
BACKEND_SETTINGS = ValueKind("<string>,<string>=<string>", _read_backend, _gather_by_name)
COMPAT_WORDS = ValueKind("string", _read_compat)
CACHE_SETTINGS = ValueKind("<string>,<string>=<string>", _read_cache, _gather_cache)
HOST_POLICIES = ValueKind("<string>,<string>=<string>", _read_host_policy, _gather_by_name)
METRICS_SETTINGS = ValueKind("<string>=<string>", _read_metrics_setting, _gather_metrics)
RESOURCES = ValueKind("<string>:<integer>:<integer>", _read_resource, _gather_resources)
