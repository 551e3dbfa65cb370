"""`trireme keys`: makes, lists, renews and removes the keys that clients of a server need."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from trireme.access.api_key import QUOTA_NAMES, ApiKey, Quota
from trireme.access.groups import EVERY_GROUP, GROUPS, USUAL_GROUPS, expand
from trireme.access.key_file import check_groups, check_name, check_quota, read_key_file
from trireme.access.key_secret import digest_of, new_secret
from trireme.access.key_writer import add_key, remove_key, rotate_key
from trireme.cli.endings import CommandEnded
from trireme.config.options.flag_parser import FlagParser
from trireme.core.errors import ServingError
from trireme.observe.terminal.appearance import line_width
from trireme.observe.terminal.table import render_table

SUMMARY = "make, list, renew or remove the keys of clients"

USAGE = f"""Usage: trireme keys new FILE NAME [--groups GROUP,...] [--requests-per-second N] [--bytes-per-second N]
                                  [--requests-in-flight N]
       trireme keys list FILE
       trireme keys rotate FILE NAME [--only-new]
       trireme keys remove FILE NAME

FILE is the file of --api-keys; a server that uses it reads it again within seconds. It holds hashes alone: the key
itself is printed once, and it is all that is printed on standard output.

new      makes a key, and the file where there is none. Without --groups it may use {", ".join(USUAL_GROUPS)}.
list     prints the names, what each may use, and its quotas
rotate   makes another key for the same name; the one before holds on until the next rotate, or with --only-new ends now
remove   ends all keys of a name

The groups are {", ".join(GROUPS)};
{EVERY_GROUP} stands for all of them."""

_HEADERS = ("Name", "Keys", "Groups", "Quotas")


class _Parser(FlagParser):
    def error(self, message: str) -> NoReturn:
        print(f"trireme keys: {self.explained(message)}\n\n{USAGE}", file=sys.stderr)
        raise CommandEnded(1)


def main(arguments: Sequence[str]) -> int:
    """Runs one of the commands; the exit code of the process."""
    if not arguments or arguments[0] == "help" or "-h" in arguments or "--help" in arguments:
        print(USAGE, file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 1
    found = _parser().parse_args(list(arguments))
    try:
        return int(found.run(found))
    except ServingError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="trireme keys", add_help=False)
    commands = parser.add_subparsers(required=True, parser_class=_Parser, metavar="new|list|rotate|remove")
    new = _command(commands, "new", _new)
    new.add_argument("name")
    new.add_argument("--groups", default=",".join(USUAL_GROUPS))
    new.add_argument("--requests-per-second", type=float)
    new.add_argument("--bytes-per-second", type=int)
    new.add_argument("--requests-in-flight", type=int)
    _command(commands, "list", _list)
    rotate = _command(commands, "rotate", _rotate)
    rotate.add_argument("name")
    rotate.add_argument("--only-new", action="store_true")
    _command(commands, "remove", _remove).add_argument("name")
    return parser


def _command(commands: argparse._SubParsersAction[_Parser], name: str, run: object) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, add_help=False)
    parser.set_defaults(run=run)
    parser.add_argument("file", type=Path)
    return parser


def _new(found: argparse.Namespace) -> int:
    groups = tuple(name.strip() for name in found.groups.split(",") if name.strip())
    limits = {name: getattr(found, name) for name in QUOTA_NAMES}
    problem = check_name(found.name) or check_groups(groups)
    for name, value in limits.items():
        problem = problem or check_quota(name, value)
    if problem is not None:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    secret = new_secret()
    add_key(found.file, ApiKey(found.name, (digest_of(secret.encode()),), expand(groups), Quota(**limits)))
    return _show(secret, f"The key '{found.name}' may use {', '.join(groups)}.")


def _rotate(found: argparse.Namespace) -> int:
    secret = new_secret()
    rotate_key(found.file, found.name, digest_of(secret.encode()), found.only_new)
    before = "Keys before it have ended." if found.only_new else "The one before it holds until the next rotate."
    return _show(secret, f"'{found.name}' has another key. {before}")


def _show(secret: str, sentence: str) -> int:
    print(f"{sentence} It is shown this once; clients send it as 'Authorization: Bearer <key>':", file=sys.stderr)
    print(secret, flush=True)
    return 0


def _list(found: argparse.Namespace) -> int:
    rows = [
        (key.name, str(len(key.hashes) or "-"), ", ".join(g for g in GROUPS if g in key.groups), _quotas(key.quota))
        for key in read_key_file(found.file)
    ]
    print(render_table(_HEADERS, rows, line_width(sys.stdout)))
    return 0


def _quotas(quota: Quota) -> str:
    given = [(name, getattr(quota, name)) for name in QUOTA_NAMES]
    return ", ".join(f"{name} {value:g}" for name, value in given if value is not None) or "-"


def _remove(found: argparse.Namespace) -> int:
    remove_key(found.file, found.name)
    print(f"The keys of '{found.name}' have ended.", file=sys.stderr)
    return 0
