"""What one command-line option is: its value, its words, and how much of it this server honours."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any


class OptionError(Exception):
    """An option that cannot be used, told as `tritonserver` tells it: after the usage text, on stderr, exit 1."""

    def __init__(self, message: str, flag: str | None = None, *, shows_usage: bool = True) -> None:
        super().__init__(message if flag is None else f'Bad option: "--{flag}".\n{message}')
        self.why = message
        self.flag = flag
        self.shows_usage = shows_usage


class OptionStatus(enum.Enum):
    """What becomes of an option that is given."""

    WORKS = "works"
    IGNORED = "ignored"
    """Accepted and without effect; a warning at start says why."""
    REFUSED = "refused"
    """The server does not start, because running without it would not be what was asked for."""


@dataclass(frozen=True, slots=True)
class ValueKind:
    """How the text of an option becomes a value."""

    placeholder: str
    """Its type in the usage text, `<integer>`."""
    read: Callable[[str, str], Any]
    """(text, flag) to the value of one occurrence; raises OptionError."""
    gather: Callable[[Sequence[Any], str], Any] | None = None
    """(values of all occurrences, flag) to the field's value; None where the last occurrence wins."""
    takes_value: bool = True
    """False for a bare flag, which is true when it is there."""
    none_text: str = ""
    """What a user types for None; "" where it cannot be typed."""


@dataclass(frozen=True, slots=True)
class Option:
    """One flag of the server: the metadata of one field of `ServerOptions`."""

    flag: str
    """Without the leading dashes."""
    field_name: str
    kind: ValueKind
    default: Any
    help: str
    group: str
    aliases: tuple[str, ...] = ()
    status: OptionStatus = OptionStatus.WORKS
    reason: str = ""
    """Why it is ignored or refused."""
    is_extension: bool = False
    """Ours, unknown to `tritonserver`."""

    @property
    def environment(self) -> str:
        """The variable that stands in for the flag: `TRIREME_HTTP_PORT`."""
        return "TRIREME_" + self.field_name.upper()

    @property
    def can_repeat(self) -> bool:
        return self.kind.gather is not None

    def asks_for_something(self, value: Any) -> bool:
        """Whether the value differs from what happens without the option."""
        return bool(value != self.default)


def option(
    default: Any,
    kind: ValueKind,
    help_text: str,
    *,
    flag: str | None = None,
    aliases: tuple[str, ...] = (),
    ignored: str | None = None,
    refused: str | None = None,
    is_extension: bool = False,
) -> Any:
    """A dataclass field that is also a flag; `ignored` or `refused` gives the reason why it does not work."""
    status = OptionStatus.WORKS
    if ignored is not None:
        status = OptionStatus.IGNORED
    if refused is not None:
        status = OptionStatus.REFUSED
    declared = {
        "kind": kind,
        "help": help_text,
        "flag": flag,
        "aliases": aliases,
        "status": status,
        "reason": ignored or refused or "",
        "is_extension": is_extension,
    }
    if isinstance(default, dict):
        return field(default_factory=dict, metadata={"option": declared})
    return field(default=default, metadata={"option": declared})


def declared_options(group: type[Any]) -> list[Option]:
    """The options that one group's own class declares, in its order; the group's title is its `TITLE`."""
    own = group.__annotations__
    return [_from_field(entry, group.TITLE) for entry in fields(group) if entry.name in own and entry.metadata]


def _from_field(entry: Any, title: str) -> Option:
    declared = dict(entry.metadata["option"])
    flag = declared.pop("flag") or entry.name.replace("_", "-")
    default = entry.default_factory() if callable(entry.default_factory) else entry.default
    return Option(flag=flag, field_name=entry.name, default=default, group=title, **declared)
