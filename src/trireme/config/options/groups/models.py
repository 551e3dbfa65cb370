"""Options about the server itself, its log, and the models it serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trireme.config.options.option import option
from trireme.config.options.sizes import BYTE_SIZE, SECONDS
from trireme.config.options.values import (
    BOOLEAN,
    COUNT,
    POSITIVE,
    PROCESSES_OR_AUTO,
    REQUIRED_TEXT,
    SWITCH,
    TEXT,
    TEXTS,
    VERBOSITY,
    WHOLE_SECONDS,
    choice,
)


@dataclass(frozen=True)
class ProcessOptions:
    """The server as a process."""

    TITLE: ClassVar[str] = "Server"

    id: str = option("triton", TEXT, "The server's name, as its metadata gives it.")
    exit_timeout_secs: int = option(
        30, WHOLE_SECONDS, "How long a shutdown waits for requests in flight before it gives up and exits with 1."
    )
    frontend_processes: int | None = option(
        None,
        PROCESSES_OR_AUTO,
        "How many processes hold the connections of HTTP and gRPC clients and read their requests; with 1 the server "
        "process does that itself, with auto the number follows from the cores and the instances: it is 1 with fewer "
        "than 8 cores, and with models that would not gain.",
        is_extension=True,
    )
    frontend_leases: bool = option(
        True,
        BOOLEAN,
        "Whether workers of busy and simple models are leased to front-end processes, where there are any, which then "
        "queue and batch for them.",
        is_extension=True,
    )
    debug: str | None = option(
        None,
        REQUIRED_TEXT,
        "Run this model with one instance that reads and writes the server's terminal, so that breakpoint() in its "
        "model.py works, and wait for it as long as it takes.",
        is_extension=True,
    )


@dataclass(frozen=True)
class LogOptions:
    """What is logged, how and where."""

    TITLE: ClassVar[str] = "Logging"

    log_verbose: int = option(0, VERBOSITY, "0 for no verbose lines; 1 or more for that level of detail.")
    log_info: bool = option(True, BOOLEAN, "Whether information lines are logged.")
    log_warning: bool = option(True, BOOLEAN, "Whether warnings are logged.")
    log_error: bool = option(True, BOOLEAN, "Whether errors are logged.")
    log_format: str = option(
        "default", choice("default", "ISO8601"), "How a line begins: LMMDD hh:mm:ss.ssssss, or an ISO 8601 time."
    )
    log_file: str | None = option(None, REQUIRED_TEXT, "Log to this file instead of the console.")


@dataclass(frozen=True)
class RepositoryOptions:
    """Which models, from where, and how they are loaded."""

    TITLE: ClassVar[str] = "Model Repository"

    model_repository: tuple[str, ...] = option(
        (),
        TEXTS,
        "A folder of models. Give it again for more folders; a model found in two of them is not served.",
        aliases=("model-store",),
    )
    exit_on_error: bool = option(
        True, BOOLEAN, "Exit with 1 when a model fails to load at start. False by default under trireme serve."
    )
    disable_auto_complete_config: bool = option(
        False, SWITCH, "Do not complete model configurations: config.pbtxt must say everything that is needed."
    )
    strict_readiness: bool = option(
        True, BOOLEAN, "Be ready only when every model is; otherwise ready means that the server answers."
    )
    model_control_mode: str = option(
        "none",
        choice("none", "poll", "explicit", "auto"),
        "none loads every model at start; poll follows changes of the repository; explicit loads what --load-model "
        "and the model control API ask for; auto, which is Trireme's own, loads a model when the first request for "
        "it comes.",
    )
    watch: bool = option(
        False,
        SWITCH,
        "Load models again as soon as their files change: --model-control-mode=poll with a look every second, or every "
        "--repository-poll-secs.",
        is_extension=True,
    )
    repository_poll_secs: int = option(
        15, WHOLE_SECONDS, "Seconds between two looks at the repository in mode poll; 0 is never."
    )
    load_model: tuple[str, ...] = option(
        (), TEXTS, "A model to load at start in mode explicit; repeat it for more, or give * alone for all."
    )
    pin_model: tuple[str, ...] = option(
        (),
        TEXTS,
        "A model to load at start in mode auto and never to evict; repeat it for more. The parameter trireme_pin of a "
        "model's configuration does the same.",
        is_extension=True,
    )
    on_demand_memory_budget: int = option(
        0,
        BYTE_SIZE,
        "The resident memory that the workers of all models may use in mode auto, as in 8GiB; models that have not "
        "been used for the longest time make room for others. 0 is no limit.",
        is_extension=True,
    )
    on_demand_ttl: float = option(
        0.0, SECONDS, "Seconds without a request after which mode auto unloads a model; 0 is never.", is_extension=True
    )
    on_demand_queue_size: int = option(
        100, POSITIVE, "How many requests may wait for one model to load in mode auto.", is_extension=True
    )
    on_demand_load_timeout: float = option(
        60.0, SECONDS, "Seconds a request may wait for its model to load in mode auto.", is_extension=True
    )
    on_demand_backoff: float = option(
        10.0,
        SECONDS,
        "Seconds for which mode auto does not try again to load a model whose load failed.",
        is_extension=True,
    )
    model_config_name: str | None = option(
        None, REQUIRED_TEXT, "Use configs/<name>.pbtxt of a model folder instead of its config.pbtxt, where it exists."
    )
    model_load_thread_count: int = option(4, POSITIVE, "How many models load at the same time.")
    model_load_slot_time: float = option(
        60.0,
        SECONDS,
        "Seconds after which a load no longer counts among those of --model-load-thread-count, so that models that "
        "hang do not keep others from loading; 0 is until its end.",
        is_extension=True,
    )
    model_load_timeout: float = option(
        0.0,
        SECONDS,
        "Seconds a model may take to load; then its processes are ended and the load fails. 0 is no limit. The "
        "parameter trireme_load_timeout of a model's configuration says it for that model.",
        is_extension=True,
    )
    model_load_retry_count: int = option(0, COUNT, "How often a failed load is tried again.")
    trusted_model_path: tuple[str, ...] = option(
        (),
        TEXTS,
        "A folder outside of a model's own in which EXECUTION_ENV_PATH and default_model_filename may name something; "
        "repeat it for more, and / is every folder.",
        is_extension=True,
    )
    model_namespacing: bool = option(
        False, BOOLEAN, "Let the same model name exist in two repositories; a request for such a name is refused."
    )
    enable_peer_access: bool = option(
        True, BOOLEAN, "Let GPUs reach each other's memory.", ignored="models place themselves on their GPUs"
    )
