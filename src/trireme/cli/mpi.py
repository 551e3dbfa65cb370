"""Being started by mpirun: one process is the server, more than one would be several servers on one port."""

from __future__ import annotations

from collections.abc import Mapping

_SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")


def process_count(environ: Mapping[str, str]) -> int:
    """How many processes the launcher started; 1 without a launcher."""
    for name in _SIZE_VARIABLES:
        if environ.get(name, "").isdigit():
            return int(environ[name])
    return 1


def refusal(environ: Mapping[str, str]) -> str | None:
    """Why the server does not start under this launcher; None where it does."""
    count = process_count(environ)
    if count <= 1:
        return None
    return (
        f"error: mpirun started {count} processes of the server, and all of them would listen to the same ports. "
        "Trireme starts the processes of its models itself: use 'mpirun -n 1', or start the server without mpirun."
    )
