"""The words of a command line that say which server is asked, and the end of a command that could not."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from trireme.cli.endings import parsed
from trireme.observe.terminal.appearance import painted
from trireme.observe.terminal.plain_text import shown_lines
from trireme.tools.client.connect import GRPC_PORT, HTTP_PORT, KEY_VARIABLE, ConnectionOptions
from trireme.tools.client.errors import EXIT_CODES, UNUSABLE, ClientError, InputError

ENVIRONMENT = f"""environment:
  {KEY_VARIABLE}    the key, for a server that asks for one
  TRIREME_HTTP_PORT  the port of a server on this machine, and TRIREME_GRPC_PORT with --grpc
  NO_COLOR           no colours"""
EPILOG = f"{ENVIRONMENT}\n\n{EXIT_CODES}"


def add_server_words(parser: argparse.ArgumentParser, has_grpc: bool = True) -> None:
    """The flags, with or without the choice of a protocol."""
    group = parser.add_argument_group("server")
    if has_grpc:
        group.add_argument("-u", "--url", help=f"default: localhost:{HTTP_PORT}, with --grpc localhost:{GRPC_PORT}")
        group.add_argument("--grpc", action="store_true", help="ask over gRPC")
    else:
        parser.set_defaults(url=None, grpc=False)
    group.add_argument("--key", help=f"sent as 'Authorization: Bearer KEY'; default: what {KEY_VARIABLE} holds")
    group.add_argument("-H", "--header", action="append", default=[], metavar="'NAME: VALUE'", help="may be repeated")
    group.add_argument("--timeout", type=float, default=300.0, metavar="S", help="seconds to wait; default: 300")
    group.add_argument("--ca", metavar="FILE", help="certificates that the server's may be signed with")
    group.add_argument("--insecure", action="store_true", help="trust any certificate")


def connection_options(found: argparse.Namespace) -> ConnectionOptions:
    """What the flags say; raises InputError."""
    headers = []
    for word in found.header:
        name, separator, value = word.partition(":")
        if not separator or not name.strip():
            raise InputError(f"'{word}' is no header of the form 'NAME: VALUE'")
        headers.append((name.strip(), value.strip()))
    key = found.key or os.environ.get(KEY_VARIABLE)
    if key and not any(name.lower() == "authorization" for name, _ in headers):
        headers.append(("Authorization", f"Bearer {key}"))
    if not found.timeout > 0:
        raise InputError("--timeout takes seconds, more than 0")
    return ConnectionOptions(
        found.url or _usual_url(found.grpc), found.grpc, tuple(headers), found.timeout, found.ca, found.insecure
    )


def _usual_url(is_grpc: bool) -> str:
    """On this machine, at the port where a server of this environment listens."""
    port = os.environ.get("TRIREME_GRPC_PORT" if is_grpc else "TRIREME_HTTP_PORT", "")
    return f"localhost:{port if port.isdigit() else GRPC_PORT if is_grpc else HTTP_PORT}"


def repeated_words(found: argparse.Namespace) -> list[str]:
    """The flags again, for a line that asks the same server; keys are left out."""
    words = [f"--url={found.url}"] if found.url else []
    return words + ["--grpc"] * found.grpc


def run_command(
    parser: argparse.ArgumentParser, arguments: Sequence[str], run: Callable[[argparse.Namespace], int]
) -> int:
    """The exit code of a command that asks a server, its error told; raises CommandEnded where there is nothing to
    run."""
    found = parsed(parser, arguments, UNUSABLE)
    try:
        return run(found)
    except ClientError as error:
        print(f"{painted('error:', 'red', sys.stderr)} {shown_lines(str(error))}", file=sys.stderr)
        return error.exit_code
