"""Flags that `tritonserver` still takes under an old name, and what each of them says today."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trireme.config.options.option import ValueKind
from trireme.config.options.trace import check_general
from trireme.config.options.values import BOOLEAN, COUNT, INTEGER, REQUIRED_TEXT


@dataclass(frozen=True, slots=True)
class DeprecatedOption:
    """An old flag, which becomes one occurrence of a new one."""

    flag: str
    kind: ValueKind
    new_flag: str
    translate: Callable[[str], str]
    """The old flag's text to the new flag's text."""
    advice: str
    """What to write instead."""

    def warning(self, text: str) -> str:
        """The sentence printed when the old flag is used."""
        return f"Warning: '--{self.flag}' is deprecated; write '{self.advice.format(text)}' instead."


def _read_level(text: str, flag: str) -> str:
    check_general("level", text, flag)
    return text


DEPRECATED_OPTIONS = (
    DeprecatedOption(
        "strict-model-config",
        BOOLEAN,
        "disable-auto-complete-config",
        str,
        "--disable-auto-complete-config",
    ),
    DeprecatedOption(
        "response-cache-byte-size", COUNT, "cache-config", "local,size={}".format, "--cache-config=local,size={}"
    ),
    DeprecatedOption(
        "trace-file", REQUIRED_TEXT, "trace-config", "triton,file={}".format, "--trace-config=triton,file={}"
    ),
    DeprecatedOption(
        "trace-level",
        ValueKind("string", _read_level),
        "trace-config",
        "level={}".format,
        "--trace-config=level={}",
    ),
    DeprecatedOption("trace-rate", COUNT, "trace-config", "rate={}".format, "--trace-config=rate={}"),
    DeprecatedOption("trace-count", INTEGER, "trace-config", "count={}".format, "--trace-config=count={}"),
    DeprecatedOption(
        "trace-log-frequency",
        COUNT,
        "trace-config",
        "triton,log-frequency={}".format,
        "--trace-config=triton,log-frequency={}",
    ),
)
