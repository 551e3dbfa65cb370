"""The `trireme` command: hands the line to the file of its subcommand."""

from __future__ import annotations

from trireme.app.interruption import INTERRUPTED, ending_at_once

with ending_at_once():
    import difflib
    import os
    import signal
    import sys
    from collections.abc import Callable, Sequence

    from trireme.cli import chat, config, convert, deploy, devices, keys, neuron_model, package, serve, version

Command = tuple[str, Callable[[Sequence[str]], int]]

COMMANDS: dict[str, Command] = {
    "serve": (serve.SUMMARY, serve.main),
    "deploy": (deploy.SUMMARY, deploy.main),
    "chat": (chat.SUMMARY, chat.main),
    "devices": (devices.SUMMARY, devices.main),
    "config": (config.SUMMARY, config.main),
    "convert": (convert.SUMMARY, convert.main),
    "package": (package.SUMMARY, package.main),
    "keys": (keys.SUMMARY, keys.main),
    "neuron-model": (neuron_model.SUMMARY, neuron_model.main),
    "version": (version.SUMMARY, version.main),
}
"""By name: one line of help, and the function that takes the rest of the words and returns the exit code."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one subcommand; the exit code of the process."""
    try:
        code = _run(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # whoever read the output has enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # pressed again while the process ends
        return INTERRUPTED


def usage() -> str:
    """The commands, one line each."""
    lines = ["Usage: trireme COMMAND [arguments]", ""]
    lines += [f"  {name:<14}{summary}" for name, (summary, _) in COMMANDS.items()]
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
    return COMMANDS[name][1](words[1:])


def _help(words: Sequence[str]) -> int:
    if words and words[0] in COMMANDS:
        return COMMANDS[words[0]][1](["--help"])
    print(usage())
    return 0


def _unknown(word: str) -> str:
    nearest = difflib.get_close_matches(word, COMMANDS, n=1)
    suggestion = f" Did you mean 'trireme {nearest[0]}'?" if nearest else ""
    return f"trireme: there is no command '{word}'.{suggestion}\n\n{usage()}"
