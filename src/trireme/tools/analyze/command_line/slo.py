"""Bounds in a few characters: `p99<100ms`, `throughput>50`, `ttft<200ms`, `memory<2GB`."""

from __future__ import annotations

import re
from typing import Final

from trireme.tools.analyze.errors import InputError
from trireme.tools.analyze.metrics import METRICS, known_tag
from trireme.tools.analyze.options import Constraint

_CONSTRAINT = re.compile(r"\s*([A-Za-z_]\w*)\s*(<=|<|>=|>|=<|=>)\s*([0-9.]+(?:[eE][+-]?\d+)?)\s*([A-Za-z/%]*)\s*")
_NAMES: Final = {
    "latency": "perf_latency_p99",
    "avg": "perf_latency_avg",
    "mean": "perf_latency_avg",
    "p50": "perf_latency_p50",
    "p90": "perf_latency_p90",
    "p95": "perf_latency_p95",
    "p99": "perf_latency_p99",
    "throughput": "perf_throughput",
    "tokens": "output_token_throughput",
    "ttft": "time_to_first_token_p99",
    "itl": "inter_token_latency_p99",
    "memory": "cpu_used_ram",
    "gpu_memory": "gpu_used_memory",
}
_FACTORS: Final = {
    "": 1.0,
    "us": 1e-3,
    "ms": 1.0,
    "s": 1e3,
    "mb": 1.0,
    "gb": 1e3,
    "/s": 1.0,
    "infer/s": 1.0,
    "infer/sec": 1.0,
    "tokens/s": 1.0,
    "%": 1.0,
}
_TIMES, _SIZES = ("us", "ms", "s"), ("mb", "gb")


def read_constraint(text: str) -> Constraint:
    """Raises InputError."""
    match = _CONSTRAINT.fullmatch(text)
    if match is None:
        raise InputError(f"'{text}' is no bound such as p99<100ms or throughput>50")
    name, sign, value, unit = match[1], match[2], match[3], match[4].lower()
    tag = _NAMES.get(name.lower()) or known_tag(name)
    if tag is None:
        raise InputError(f"'{text}': there is no '{name}' to measure; there are {', '.join(_NAMES)}")
    if unit not in _FACTORS or (unit in _TIMES) > ("(ms)" in METRICS[tag].header):
        raise InputError(f"'{text}': '{match[4]}' is no unit of {METRICS[tag].header}")
    if unit in _SIZES and "(MB)" not in METRICS[tag].header:
        raise InputError(f"'{text}': '{match[4]}' is no unit of {METRICS[tag].header}")
    try:
        bound = float(value) * _FACTORS[unit]
    except ValueError:
        raise InputError(f"'{text}': '{value}' is no number") from None
    return Constraint(tag, most=bound) if "<" in sign else Constraint(tag, least=bound)


def read_objective(text: str) -> tuple[str, float]:
    """A tag, perhaps with a weight behind a colon; raises InputError."""
    name, colon, weight = text.partition(":")
    tag = _NAMES.get(name.strip().lower()) or known_tag(name.strip())
    if tag is None:
        raise InputError(f"'{name}' is no objective; there are {', '.join(METRICS)}")
    try:
        found = float(weight) if colon else 1.0
    except ValueError:
        found = 0.0
    if found <= 0:
        raise InputError(f"'{text}': the weight of an objective is a number above 0")
    return tag, found
