"""Options about who may use the server and how much of it, what is written down about it, and what models may not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trireme.config.options.option import option
from trireme.config.options.sizes import BYTE_SIZE, SECONDS
from trireme.config.options.values import BOOLEAN, COUNT, HEADER_NAME, REQUIRED_TEXT, choice, integer


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
    allow_recording: bool = option(
        False,
        BOOLEAN,
        "Whether clients may have the requests of others recorded, as trireme record does; with keys, those that have "
        "the group recording.",
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


@dataclass(frozen=True)
class LimitOptions:
    """Bounds for what clients may take, all of them ours."""

    TITLE: ClassVar[str] = "Limits"

    max_connections: int = option(
        10_000,
        COUNT,
        "How many connections are served at the same time, on all ports together; no more than the open files that the "
        "system allows, less a reserve. Beyond it health alone is answered. 0 leaves the reserve as the only bound.",
        is_extension=True,
    )
    max_connections_per_address: int = option(
        0, COUNT, "How many of them one address may have; 0 is no limit.", is_extension=True
    )
    connection_idle_timeout: float = option(
        600.0, SECONDS, "Seconds after which a connection without a request is closed; 0 is never.", is_extension=True
    )
    request_header_timeout: float = option(
        60.0, SECONDS, "Seconds that the head of a request may take to arrive.", is_extension=True
    )
    min_transfer_rate: int = option(
        100,
        COUNT,
        "Bytes a second that a request has to arrive with, and an answer to be read with, averaged over a minute, or "
        "over five for answers over gRPC.",
        is_extension=True,
    )
    max_inflight_bytes: int | None = option(
        None,
        BYTE_SIZE,
        "What all requests and unread answers together may take in the server: as received, as inflated, while they "
        "wait. Half of the memory that is free at the start unless said otherwise.",
        is_extension=True,
    )
    max_connection_inflight_bytes: int | None = option(
        None,
        BYTE_SIZE,
        "The same for one connection. Half of what all may take unless said otherwise.",
        is_extension=True,
    )
    http_max_binary_size: int = option(
        4 << 30, BYTE_SIZE, "The largest HTTP request body with binary data behind its JSON.", is_extension=True
    )
    max_queue_size: int = option(
        100_000,
        COUNT,
        "How many requests may wait for one model that sets no max_queue_size itself; 0 is no limit.",
        is_extension=True,
    )
    max_shared_memory_regions: int = option(
        4096, COUNT, "How many regions of shared memory clients may have registered.", is_extension=True
    )
