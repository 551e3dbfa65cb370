"""The `trireme` command: hands the line to the file of its subcommand."""

from __future__ import annotations

from trireme.app.early_interrupt import ending_at_once

with ending_at_once():
    import sys
    from collections.abc import Sequence
    from importlib import import_module
    from typing import Protocol, cast

    from trireme.cli.endings import exit_code_of


class Command(Protocol):
    """The module of a subcommand."""

    SUMMARY: str
    """One line of help."""

    def main(self, arguments: Sequence[str]) -> int:
        """Takes the words behind the command's name; the exit code of the process."""


COMMANDS: dict[str, str] = {
    "serve": "serve",
    "new": "new",
    "deploy": "deploy",
    "chat": "chat",
    "infer": "client.infer",
    "models": "client.models",
    "devices": "devices",
    "config": "config",
    "build": "checkpoints.build",
    "convert": "checkpoints.convert",
    "package": "package",
    "perf": "load_tests.perf",
    "analyze": "load_tests.analyze",
    "record": "recording.record",
    "replay": "recording.replay",
    "keys": "keys",
    "neuron-model": "neuron_model",
    "version": "version",
}
"""By name: the module below this package. Only the one that is asked for is read, since they need much each."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one subcommand; the exit code of the process."""
    return exit_code_of(lambda: _run(list(sys.argv[1:] if arguments is None else arguments)))


def command(name: str) -> Command:
    """The module of one of the commands."""
    with ending_at_once():
        return cast(Command, import_module(f"trireme.cli.{COMMANDS[name]}"))


def usage() -> str:
    """The commands, one line each."""
    summaries = [(name, command(name).SUMMARY) for name in COMMANDS]
    lines = ["Usage: trireme COMMAND [arguments]", ""]
    lines += [f"  {name:<14}{summary}" for name, summary in summaries]
    lines += ["  help          print this text, or that of a command: trireme help serve", ""]
    lines.append("The command tritonserver is the same server with Triton's own command line.")
    return "\n".join(lines)


def _run(words: Sequence[str]) -> int:
    if not words or words[0] in ("help", "-h", "--help"):
        return _help(words[1:])
    name = "version" if words[0] == "--version" else words[0]
    if name not in COMMANDS:
        print(_unknown(name), file=sys.stderr)
        return 1
    return command(name).main(words[1:])


def _help(words: Sequence[str]) -> int:
    if words and words[0] in COMMANDS:
        return command(words[0]).main(["--help"])
    if words and words[0] not in ("help", "-h", "--help"):
        print(_unknown(words[0]), file=sys.stderr)
        return 1
    print(usage())
    return 0


def _unknown(word: str) -> str:
    from trireme.core.close_names import closest

    nearest = closest(word, COMMANDS)
    suggestion = f" Did you mean 'trireme {nearest}'?" if nearest else ""
    return f"trireme: there is no command '{word}'.{suggestion}\n\n{usage()}"
