"""Command-line words to (flag, text) pairs, by the rules of getopt_long that `tritonserver` follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from trireme.config.options.deprecated import DEPRECATED_OPTIONS, DeprecatedOption
from trireme.config.options.flag_parser import flag_suggestion
from trireme.config.options.option import Option, OptionError
from trireme.config.options.server import server_options

AnyOption = Option | DeprecatedOption


class HelpRequested(Exception):
    """`--help` was among the words."""


class Occurrence(NamedTuple):
    """One use of an option; a bare flag has the text `true`."""

    option: AnyOption
    text: str


class Scan(NamedTuple):
    """The options in their order, and the words that belong to none."""

    occurrences: list[Occurrence]
    positionals: list[str]


def scan(arguments: Sequence[str], program: str) -> Scan:
    """Splits the words; raises OptionError or HelpRequested."""
    known = _options_by_flag()
    occurrences: list[Occurrence] = []
    positionals: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            positionals.extend(words)
        elif word.startswith("--"):
            flag, equals, text = word[2:].partition("=")
            option = _resolve(flag, known, program)
            if not option.kind.takes_value:
                if equals:
                    raise OptionError(f"{program}: option '--{option.flag}' doesn't allow an argument")
                text = "true"
            elif not equals:
                text = _next_word(words, option, program)
            occurrences.append(Occurrence(option, text))
        elif word.startswith("-") and len(word) > 1:
            raise OptionError(f"{program}: invalid option -- '{word[1]}'. Options begin with two dashes")
        else:
            positionals.append(word)
    return Scan(occurrences, positionals)


def _options_by_flag() -> dict[str, AnyOption]:
    known: dict[str, AnyOption] = {}
    for option in server_options():
        for flag in (option.flag, *option.aliases):
            known[flag] = option
    for deprecated in DEPRECATED_OPTIONS:
        known[deprecated.flag] = deprecated
    return known


def _next_word(words: Iterator[str], option: AnyOption, program: str) -> str:
    word = next(words, None)
    if word is None:
        raise OptionError(f"{program}: option '--{option.flag}' requires an argument")
    return word


def _resolve(flag: str, known: Mapping[str, AnyOption], program: str) -> AnyOption:
    """The option a flag names in full or by the beginning that only one option has."""
    if flag in known:
        return known[flag]
    matches = [name for name in (*known, "help") if flag and name.startswith(flag)]
    matches = [name for name in matches if not _is_extension(known.get(name))]
    if matches == ["help"]:
        raise HelpRequested
    if len({known[name].flag if name in known else name for name in matches}) == 1:
        return known[matches[0]]
    if matches:
        named = " ".join(f"'--{name}'" for name in matches)
        raise OptionError(f"{program}: option '--{flag}' is ambiguous; possibilities: {named}")
    raise OptionError(f"{program}: unrecognized option '--{flag}'{flag_suggestion(flag, known)}")


def _is_extension(option: AnyOption | None) -> bool:
    """Our own options are never abbreviated, so that they make none of Triton's abbreviations ambiguous."""
    return isinstance(option, Option) and option.is_extension
