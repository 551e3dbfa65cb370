"""Reading the server's options for a command, and telling the user what was wrong with them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trireme.cli.endings import CommandEnded
from trireme.config.options.conflicts import check_repository_given
from trireme.config.options.option import OptionError
from trireme.config.options.parser import parse_options
from trireme.config.options.scanner import HelpRequested
from trireme.config.options.server import ServerOptions
from trireme.config.options.usage import option_text, usage_text


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """How one command presents the same server."""

    program: str
    arguments: str
    """As the usage line shows them."""
    help_exit_code: int
    defaults: ServerOptions
    takes_repositories: bool = False
    is_for_people: bool = False
    """A wrong flag is answered with its neighbour and where help is, not with the whole usage."""


def read_options(command: ServerCommand, arguments: Sequence[str], environ: Mapping[str, str]) -> ServerOptions:
    """The options of a command line; what there is to say about them is on stderr, and CommandEnded is raised
    where the command is over."""
    usage = usage_text(command.program, command.arguments)
    try:
        parsed = parse_options(
            arguments,
            environ,
            program=command.program,
            defaults=command.defaults,
            takes_repositories=command.takes_repositories,
        )
        check_repository_given(parsed.options)
    except HelpRequested:
        print(usage, file=sys.stdout if command.help_exit_code == 0 else sys.stderr)
        raise CommandEnded(command.help_exit_code) from None
    except OptionError as error:
        if error.shows_usage and not command.is_for_people:
            print(usage, file=sys.stderr)
        print(error, file=sys.stderr)
        if error.shows_usage and command.is_for_people:
            if explained := option_text(error.flag):
                print(explained, file=sys.stderr)
            print(f"'{command.program} --help' lists every option.", file=sys.stderr)
        raise CommandEnded(1) from None
    for sentence in parsed.deprecations:
        print(sentence, file=sys.stderr)
    return parsed.options
