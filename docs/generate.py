"""Writes docs/reference/ from the code: python docs/generate.py"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from trireme.config.options.deprecated import DEPRECATED_OPTIONS
from trireme.config.options.option import Option, OptionStatus
from trireme.config.options.server import server_options
from trireme.config.options.usage import default_text
from trireme.proto import model_config_pb2

DOCS = Path(__file__).parent
NOTE = "<!-- Written by docs/generate.py; change the code and run `make reference`. -->"


def flags_page() -> str:
    """Every option of the server."""
    lines = [
        "# Options of the server",
        "",
        NOTE,
        "",
        "`tritonserver` and `trireme serve` take the same options, as `--name=value` or `--name value`, in full or",
        "abbreviated as long as only one name begins that way. Booleans are `true`, `on`, `1`, `false`, `off`, `0`.",
        "Every option can also be given in the environment, as `TRIREME_` and its name; a flag wins. In the",
        "environment, values of an option that may be repeated are separated by blanks and quoted as in a shell.",
        "",
        "An option marked *no effect* is accepted with a warning that says why; one marked *refused* stops the start.",
        "Given at their default value, both are silent.",
    ]
    for title in dict.fromkeys(entry.group for entry in server_options()):
        lines += ["", f"## {title}", "", "| Option | Default | Meaning |", "|---|---|---|"]
        lines += [_flag_row(entry) for entry in server_options() if entry.group == title]
    lines += ["", "## Old names", "", "| Option | Write instead |", "|---|---|"]
    lines += [f"| `--{old.flag}` | `{old.advice.format('<value>')}` |" for old in DEPRECATED_OPTIONS]
    return "\n".join(lines) + "\n"


def _flag_row(entry: Option) -> str:
    names = ", ".join(f"`--{name}`" for name in (entry.flag, *entry.aliases))
    meaning = entry.help
    if entry.can_repeat:
        meaning += " May be repeated."
    if entry.is_extension:
        meaning += " Trireme's own."
    if entry.status is OptionStatus.IGNORED:
        meaning += f" *No effect: {entry.reason}.*"
    if entry.status is OptionStatus.REFUSED:
        meaning += f" *Refused: {entry.reason}.*"
    default = default_text(entry)
    cells = [names, f"`{default}`" if default else "", meaning.replace("<", "&lt;")]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def config_page() -> str:
    """Every field of config.pbtxt."""
    lines = [
        "# Fields of config.pbtxt",
        "",
        NOTE,
        "",
        "A field with a dash in the second column is read, checked and reported back by the server, and nothing in",
        "this version acts on it. Fields of a part that is not listed further are described as a whole.",
        "",
        "| Field | Acted on | Meaning |",
        "|---|---|---|",
    ]
    sentences = config_sentences()
    for path in config_paths():
        for mark, table in (("yes", sentences["acts"]), ("-", sentences["kept"])):
            if path in table:
                lines.append(f"| `{path}` | {mark} | {table[path]} |")
    return "\n".join(lines) + "\n"


def config_sentences() -> dict[str, dict[str, str]]:
    """By `acts` and `kept`: the sentence for each path."""
    with (DOCS / "config_fields.toml").open("rb") as file:
        return tomllib.load(file)


def config_paths() -> Iterator[str]:
    """The path of every field of the message, parents before their parts."""
    yield from _paths(model_config_pb2.ModelConfig.DESCRIPTOR, "")


def _paths(message: Any, prefix: str) -> Iterator[str]:
    for field in message.fields:
        path = prefix + field.name
        yield path
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            yield from _paths(field.message_type, path + ".")


PAGES: dict[str, Callable[[], str]] = {
    "reference/flags.md": flags_page,
    "reference/config-fields.md": config_page,
}
"""By path under docs/."""


def main() -> None:
    for path, page in PAGES.items():
        (DOCS / path).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
