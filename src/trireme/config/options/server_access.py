"""Options about who may use the server, what is written down about it, and what models may not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trireme.config.options.option import option
from trireme.config.options.sizes import BYTE_SIZE
from trireme.config.options.values import BOOLEAN, HEADER_NAME, REQUIRED_TEXT, choice, integer


@dataclass(frozen=True)
class AccessOptions:
    """Keys, and what is known of those who use them."""

    TITLE: ClassVar[str] = "Access"

    api_keys: str | None = option(
        None,
        REQUIRED_TEXT,
        "A file with the keys that clients need, on HTTP, gRPC and the metrics port; trireme keys writes it, and it is "
        "read again when it changes.",
        is_extension=True,
    )
    api_key_header: str = option(
        "",
        HEADER_NAME,
        "A header that may carry the key in place of Authorization: Bearer.",
        is_extension=True,
    )
    access_log: str | None = option(
        None,
        REQUIRED_TEXT,
        "A file that gets a line for every request, - is standard output; it is opened anew when it was moved away.",
        is_extension=True,
    )
    access_log_format: str = option(
        "json",
        choice("json", "common"),
        "The form of its lines: json, or the common log format with the model, the bytes received and the seconds "
        "behind it.",
        is_extension=True,
    )


@dataclass(frozen=True)
class WorkerOptions:
    """Limits of the processes that run models."""

    TITLE: ClassVar[str] = "Workers"

    worker_memory_limit: int | None = option(
        None,
        BYTE_SIZE,
        "The memory that each worker process may allocate; a model that wants more gets a MemoryError.",
        is_extension=True,
    )
    worker_open_files: int | None = option(
        None, integer(64), "The files and connections that each worker process may have open.", is_extension=True
    )
    worker_user: str | None = option(
        None,
        REQUIRED_TEXT,
        "The user, by name or number, that worker processes run as; the server then has to run as root.",
        is_extension=True,
    )
    worker_network: bool = option(
        True,
        BOOLEAN,
        "Whether models may use the network; with false they cannot make sockets that leave the machine.",
        is_extension=True,
    )
