"""`trireme models`: the models of a running server, what they do, and their loading and unloading."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from trireme.tools.client.port import ServerClient

_Found = TypeVar("_Found")

SUMMARY = "the models of a running server: index, config, statistics, load, unload; --live watches them"

_DESCRIPTION = """Without a command: every model and version in the repositories, with its state.

  config MODEL          its configuration, completed by the server
  statistics [MODEL]    requests, errors, batches and mean times since it was loaded
  load MODEL ...        load; what has changed is loaded anew, and the old copy answers meanwhile
  unload MODEL ...      unload
  reload MODEL ...      unload and load in any case; requests in between are refused
  --live [MODEL]        what they do, measured every other second, until Ctrl+C"""
_ON_THE_WAY = ("LOADING", "UNLOADING")
_POLL_S = 0.1
_COMMANDS = ("index", "config", "statistics", "load", "unload", "reload")


def main(arguments: Sequence[str]) -> int:
    """Asks or tells the server; the exit code of the process."""
    from trireme.cli.client import server_words  # the other commands need none of it

    return server_words.run_command(make_parser(), arguments, _run)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    from trireme.cli.client import server_words
    from trireme.config.options.flag_parser import FlagParser

    parser = FlagParser(
        "trireme models",
        usage="trireme models [COMMAND] [MODEL ...] [options]",
        description=_DESCRIPTION,
        epilog=server_words.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("words", nargs="*", metavar="COMMAND", help="one of those above, and the names of models")
    parser.add_argument("--json", action="store_true", help="what the server says, as JSON")
    parser.add_argument("--version", default="", metavar="N", help="of a model, for config and statistics")
    parser.add_argument("--live", action="store_true", help="a view like top")
    parser.add_argument("--interval", type=float, default=2.0, metavar="S", help="of --live; default: 2 seconds")
    parser.add_argument("--count", type=int, metavar="N", help="of --live: end after N tables")
    parser.add_argument(
        "--config", metavar="FILE", help="load, reload: this configuration (JSON) in place of the file's"
    )
    parser.add_argument("--dependents", action="store_true", help="unload: the steps of an ensemble with it")
    server_words.add_server_words(parser)
    return parser


def _run(found: argparse.Namespace) -> int:
    from trireme.cli.client.server_words import connection_options
    from trireme.tools.client.connect import connect
    from trireme.tools.client.errors import InputError
    from trireme.tools.client.model import nearest

    command, names = (found.words[0], found.words[1:]) if found.words else ("index", [])
    client = connect(connection_options(found))
    if found.live:
        return _live(client, found.words, found)
    if command not in _COMMANDS:
        raise InputError(f"there is no command '{command}'{nearest(command, (*_COMMANDS, '--live'))}")
    if command in ("index", "statistics"):
        _limit(command, names, 1 if command == "statistics" else 0)
    elif not names:
        raise InputError(f"'trireme models {command}' needs the name of a model")
    return {
        "index": _index,
        "config": _config,
        "statistics": _statistics,
        "load": _load,
        "unload": _unload,
        "reload": _reload,
    }[command](client, names, found)


def _limit(command: str, names: Sequence[str], most: int) -> None:
    from trireme.tools.client.errors import InputError

    if len(names) > most:
        raise InputError(f"'trireme models {command}' takes {'one model at most' if most else 'no model'}")


def _index(client: ServerClient, names: Sequence[str], found: argparse.Namespace) -> int:
    from trireme.tools.models.tables import index_table

    entries = client.index()
    if found.json:
        print(json.dumps(entries))
    else:
        print(index_table(entries, sys.stdout) if entries else f"the server at {client.place} has no models")
    return 0


def _config(client: ServerClient, names: Sequence[str], found: argparse.Namespace) -> int:
    from trireme.tools.models.tables import config_text

    configs = [_known(client, name, lambda name: client.config(name, found.version)) for name in names]
    if found.json:
        print(json.dumps(configs[0] if len(configs) == 1 else configs, indent=2))
    else:
        print("\n\n".join(config_text(config, sys.stdout) for config in configs))
    return 0


def _statistics(client: ServerClient, names: Sequence[str], found: argparse.Namespace) -> int:
    from trireme.tools.models.statistics_table import statistics_table

    name = names[0] if names else ""
    entries = _known(client, name, lambda name: client.statistics(name, found.version))
    if found.json:
        print(json.dumps({"model_stats": entries}))
    else:
        print(statistics_table(entries, sys.stdout) if entries else "no model is loaded")
    return 0


def _load(client: ServerClient, names: Sequence[str], found: argparse.Namespace) -> int:
    config = _config_of_file(found.config) if found.config is not None else None

    def load(name: str) -> None:
        client.load(name, config)

    return _control(client, names, load, found)


def _reload(client: ServerClient, names: Sequence[str], found: argparse.Namespace) -> int:
    config = _config_of_file(found.config) if found.config is not None else None

    def reload(name: str) -> None:
        client.unload(name, with_dependents=False)
        _settled(client, [name], found.timeout)
        client.load(name, config)

    return _control(client, names, reload, found)


def _unload(client: ServerClient, names: Sequence[str], found: argparse.Namespace) -> int:
    def unload(name: str) -> None:
        client.unload(name, found.dependents)

    return _control(client, names, unload, found)


def _control(client: ServerClient, names: Sequence[str], act: Callable[[str], None], found: argparse.Namespace) -> int:
    """One after the other; the first failure ends it. Then their states."""
    from trireme.tools.client.errors import UnknownModelError
    from trireme.tools.client.model import unknown_model

    known = {entry["name"] for entry in client.index()}
    for name in names:
        if name not in known:  # a server may be asked to unload what it never had, and says nothing
            raise UnknownModelError(unknown_model(client, name, f"there is no model '{name}'"))
        act(name)
    entries = _settled(client, names, found.timeout)
    if found.json:
        print(json.dumps(entries))
    else:
        from trireme.tools.models.tables import index_table

        print(index_table(entries, sys.stdout))
    return 0


def _settled(client: ServerClient, names: Sequence[str], timeout_s: float) -> list[dict[str, str]]:
    """The models' entries once none is on its way: an unload is answered before its last request is."""
    end = time.monotonic() + timeout_s
    while True:
        entries = [entry for entry in client.index() if entry["name"] in names]
        if time.monotonic() > end or not any(entry.get("state") in _ON_THE_WAY for entry in entries):
            return entries
        time.sleep(_POLL_S)


def _live(client: ServerClient, names: Sequence[str], found: argparse.Namespace) -> int:
    from trireme.tools.client.errors import InputError
    from trireme.tools.models.live import LiveView

    _limit("--live", names, 1)
    if not found.interval > 0:
        raise InputError("--interval takes seconds, more than 0")
    name = names[0] if names else ""
    view = LiveView(client, sys.stdout, found.interval, is_json=found.json, model=name)
    try:
        _known(client, name, lambda _: view.run(found.count))
    except KeyboardInterrupt:  # how one leaves it
        return 0
    return 0


def _known(client: ServerClient, name: str, ask: Callable[[str], _Found]) -> _Found:
    from trireme.tools.client.errors import UnknownModelError
    from trireme.tools.client.model import unknown_model

    try:
        return ask(name)
    except UnknownModelError as error:
        raise UnknownModelError(unknown_model(client, name, str(error))) from None


def _config_of_file(name: str) -> str:
    from trireme.tools.client.errors import InputError
    from trireme.tools.infer.files import read_text

    text = read_text(name)
    try:
        json.loads(text)
    except ValueError as error:
        raise InputError(f"'{name}' is no JSON: {error}") from None
    return text
