"""`trireme chat`: a conversation with a model in the terminal, of a running server or of one that it starts."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from trireme.cli.endings import cleaning_up_behind_signals, parsed
from trireme.cli.terminal_chat.client import ChatClient, ChatError
from trireme.cli.terminal_chat.local_server import local_server
from trireme.cli.terminal_chat.session import COMMANDS, ChatSession
from trireme.config.options.flag_parser import FlagParser
from trireme.core.close_names import closest
from trireme.tools.client.connect import KEY_VARIABLE

SUMMARY = "talk to a model in the terminal"

_DEFAULT_URL = "http://localhost:8000"
_DESCRIPTION = """MODEL is the name of a model that a running server has, and may be left out where
it has only one; or a folder: a model repository, or a single model. For a folder
a server is started, on a free port of this machine, and ended with the chat."""
_EPILOG = f"""environment:
  {KEY_VARIABLE}  the key, for a server that asks for one

commands:
  {COMMANDS.replace(chr(10), chr(10) + "  ")}

Where input or output is no terminal, each line is a question, answers alone go to
the output, and the counts to the error output."""


def main(arguments: Sequence[str]) -> int:
    """Talks until Ctrl+D or `/exit`; the exit code of the process."""
    parser = FlagParser(
        "trireme chat", description=_DESCRIPTION, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", metavar="MODEL")
    parser.add_argument("name", nargs="?", metavar="NAME", help="which of several models in the folder")
    parser.add_argument("--url", default=_DEFAULT_URL, help="the server; default: %(default)s")
    parser.add_argument("--system", default="", metavar="TEXT", help="how the model is to behave")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="length of an answer at most")
    parser.add_argument("--temperature", type=float, metavar="T", help="0: always the likeliest words")
    found = parsed(parser, arguments)
    try:
        return _talk(found)
    except ChatError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _talk(found: argparse.Namespace) -> int:
    given = {"max_tokens": found.max_tokens, "temperature": found.temperature}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    with ExitStack() as stack:
        url, name, folder = found.url, found.model, ""
        if name is not None and _is_folder(name):
            stack.enter_context(cleaning_up_behind_signals())
            url = stack.enter_context(local_server(Path(os.path.expanduser(name)), sys.stderr))
            folder, name = name, found.name
        client = ChatClient(url)
        return ChatSession(client, _choose(client, name, folder), found.system, options).run()


def _is_folder(name: str) -> bool:
    """A word with a slash in it, or the name of a folder, where no server could mean it as a model."""
    if not name:
        raise ChatError("the name of the model is empty: give that of one the server has, or a folder, or leave it out")
    path = Path(os.path.expanduser(name))
    looks_so = "/" in name or name in (".", "..") or name.startswith("~")
    try:
        is_folder = path.is_dir()
    except OSError as error:
        raise ChatError(f"the folder '{name}' cannot be read: {error.strerror}") from None
    if looks_so and not is_folder:
        raise ChatError(_no_folder(name))
    if is_folder and not os.access(path, os.R_OK | os.X_OK):
        raise ChatError(f"the folder '{name}' cannot be read: {os.strerror(errno.EACCES)}")
    return is_folder


def _no_folder(name: str) -> str:
    path = Path(os.path.expanduser(name))
    if not os.path.lexists(path):
        return f"there is no folder '{name}'"
    if path.is_file():
        return f"'{name}' is a file, and no folder"
    return f"'{name}' is {'no folder' if path.exists() else 'a link that leads nowhere, and no folder'}"


def _choose(client: ChatClient, wanted: str | None, folder: str) -> str:
    """The model that was named, or the only one there is; `folder` is what the server was started for, "": nothing."""
    try:
        names = client.models()
    except ChatError as error:
        raise (
            error if wanted is None else ChatError(f"{error}\nnor can one be started: {_no_folder(wanted)}")
        ) from None
    if wanted is not None:
        if wanted not in names:
            near = closest(wanted, names)
            meant = f"; did you mean '{near}'?" if near is not None else f"; it has: {', '.join(names) or 'none'}"
            raise ChatError(f"the server at {client.url} has no model '{wanted}' that writes texts{meant}")
        return wanted
    if not names:
        raise ChatError(_no_model(folder))
    if len(names) > 1:
        raise ChatError(f"say which model: {', '.join(names)}")
    return names[0]


def _no_model(folder: str) -> str:
    if not folder:
        return "the server has no model that writes texts"
    return (
        f"'{folder}' has no model that writes texts: give the folder of a language model, as Hugging Face's "
        "save_pretrained or 'trireme build' writes it, or a repository that has one"
    )
