"""The usage text of the server, written from the declared options."""

from __future__ import annotations

import textwrap

from trireme.config.options.deprecated import DEPRECATED_OPTIONS
from trireme.config.options.option import Option, OptionStatus
from trireme.config.options.server import server_options

_WIDTH = 76
_STATUS_WORDS = {OptionStatus.IGNORED: "Accepted without effect", OptionStatus.REFUSED: "Not available"}


def usage_text(program: str = "tritonserver", arguments: str = "[options]") -> str:
    """Every option in groups, one indented paragraph each."""
    lines = [f"Usage: {program} {arguments}", "  --help", "\tPrint usage", ""]
    for title in dict.fromkeys(entry.group for entry in server_options()):
        lines.append(f"{title}:")
        for entry in server_options():
            if entry.group == title:
                lines += _paragraphs(entry)
        lines.append("")
    lines.append("DEPRECATED:")
    for old in DEPRECATED_OPTIONS:
        lines.append(f"  --{old.flag} <{old.kind.placeholder}>")
        lines += _indented(f"Write {old.advice.format('<value>')} instead.")
    return "\n".join(lines) + "\n"


def option_text(flag: str | None) -> str:
    """What the usage says of one option, or of that with the setting `option setting`; "" for what is none."""
    name = (flag or "").partition(" ")[0]
    return "\n".join(line for entry in server_options() if name == entry.flag for line in _paragraphs(entry))


def default_text(entry: Option) -> str:
    """The default as a user would type it; "" where there is none to type."""
    value = entry.default
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"{value:g}" if isinstance(value, float) else str(value)
    if value is None:
        return entry.kind.none_text
    return value if isinstance(value, str) else ""


def _paragraphs(entry: Option) -> list[str]:
    lines = [f"  --{flag}{_value_part(entry)}" for flag in (*entry.aliases, entry.flag)]
    text = entry.help
    if entry.kind.takes_value and default_text(entry):
        text += f" Default: {default_text(entry)}."
    if entry.can_repeat:
        text += " May be given more than once."
    lines += _indented(text)
    if entry.status is not OptionStatus.WORKS:
        lines += _indented(f"{_STATUS_WORDS[entry.status]}: {entry.reason}.")
    return lines


def _value_part(entry: Option) -> str:
    return f" <{entry.kind.placeholder}>" if entry.kind.takes_value else ""


def _indented(text: str) -> list[str]:
    return ["\t" + line for line in textwrap.wrap(text, _WIDTH, break_on_hyphens=False)]
