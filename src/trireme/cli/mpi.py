"""Being started by mpirun: its first process is the server, the others compute parts of language models for it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, MutableMapping
from contextlib import ExitStack

_SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")
_RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK")


def process_count(environ: Mapping[str, str]) -> int:
    """How many processes the launcher started; 1 without a launcher."""
    return _number(environ, _SIZE_VARIABLES, 1)


def process_rank(environ: Mapping[str, str]) -> int:
    """Which of them this is; 0 without a launcher."""
    return _number(environ, _RANK_VARIABLES, 0)


def refusal(environ: Mapping[str, str]) -> str | None:
    """Why a command that also writes a repository does not start as one of several; None where it does."""
    count = process_count(environ)
    if count <= 1:
        return None
    return (
        f"error: mpirun started {count} processes, and all of them would write the same repository. Use 'mpirun -n 1', "
        f"or deploy without mpirun and then serve the repository with 'mpirun -n {count} tritonserver'."
    )


def take_part(environ: MutableMapping[str, str], links: ExitStack) -> int | None:
    """What a process of several does: one that is not the server works for it, and its exit code is told.

    None for the server itself, whose connections to the others are closed with `links`.
    """
    count, rank = process_count(environ), process_rank(environ)
    if count <= 1:
        return None
    from trireme.tools import rank_host

    try:
        if rank:
            return rank_host.keep_place(environ, rank)
        for link in rank_host.lead(environ, count):
            links.enter_context(link)
    except OSError as error:
        print(f"error: mpirun started {count} processes, which cannot work together: {error}", file=sys.stderr)
        return 1
    return None


def _number(environ: Mapping[str, str], names: tuple[str, ...], default: int) -> int:
    for name in names:
        if environ.get(name, "").isdecimal():
            return int(environ[name])
    return default
