"""The Prometheus text format: families, labels and numbers written down."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence


class PageWriter:
    """Gathers the lines of a page; a family whose first sample never comes leaves no trace."""

    __slots__ = ("_header", "_lines", "_name")

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._header = ""
        self._name = ""

    def family(self, name: str, kind: str, help_text: str) -> None:
        """Begins a family; its header is written in front of its first sample."""
        self._name = name
        self._header = f"# HELP {name} {escape_help(help_text)}\n# TYPE {name} {kind}"

    def sample(self, labels: str, value: float, suffix: str = "") -> None:
        """One line of the present family; `labels` as `label_text` makes them."""
        if self._header:
            self._lines.append(self._header)
            self._header = ""
        braces = f"{{{labels}}}" if labels else ""
        self._lines.append(f"{self._name}{suffix}{braces} {number(value)}")

    def histogram(self, labels: str, bounds: Sequence[float], counts: Sequence[int], total: float) -> None:
        """The lines of one histogram; `counts` has one more entry than `bounds`, for what lies above them."""
        self.sample(labels, sum(counts), "_count")
        self.sample(labels, total, "_sum")
        below = 0
        for bound, count in zip((*bounds, math.inf), counts, strict=True):
            below += count
            self.sample(with_label(labels, "le", number(bound)), below, "_bucket")

    def summary(self, labels: str, count: int, total: float, quantiles: Iterable[tuple[float, float]]) -> None:
        """The lines of one summary; `quantiles` pairs each quantile with its value."""
        self.sample(labels, count, "_count")
        self.sample(labels, total, "_sum")
        for quantile, value in quantiles:
            self.sample(with_label(labels, "quantile", number(quantile)), value)

    def page(self) -> bytes:
        """The whole page."""
        return "".join(f"{line}\n" for line in self._lines).encode()


def label_text(labels: Mapping[str, str]) -> str:
    """`a="1",b="2"`, sorted by name."""
    return ",".join(f'{name}="{escape_label(value)}"' for name, value in sorted(labels.items()))


def with_label(labels: str, name: str, value: str) -> str:
    """One more label behind those already written."""
    added = f'{name}="{value}"'
    return f"{labels},{added}" if labels else added


def number(value: float) -> str:
    """Integers without decimals; the spellings `Nan`, `+Inf` and `-Inf` are the ones Triton's page has."""
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return "Nan"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return format(value, ".16g")


def escape_label(value: str) -> str:
    """A label's value as it stands between quotes."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def escape_help(text: str) -> str:
    """A help text on one line."""
    return text.replace("\\", "\\\\").replace("\n", "\\n")
