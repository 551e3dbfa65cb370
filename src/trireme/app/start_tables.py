"""The tables of the start-up log: backends, models, options."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from trireme.config.options.server import ServerOptions
from trireme.core.close_names import closest
from trireme.observe.terminal.appearance import line_width
from trireme.observe.terminal.table import render_table
from trireme.server.metadata import ServerMetadata

log = logging.getLogger(__name__)


def log_tables(
    options: ServerOptions,
    backends: Sequence[tuple[str, str, str]],
    models: Sequence[tuple[str, str, str]],
    server: ServerMetadata,
    *,
    is_brief: bool,
) -> None:
    """Logs the tables, each below an empty heading as Triton does it; only that of the models where it is to be
    brief."""
    width = line_width(sys.stderr) if options.log_file is None else None
    if is_brief:
        log.info("\n%s\n", render_table(("Model", "Version", "Status"), models, width))
        return
    log.info("\n%s\n", render_table(("Repository Agent", "Path"), ()))
    log.info("\n%s\n", render_table(("Backend", "Path", "Config"), backends, width))
    log.info("\n%s\n", render_table(("Model", "Version", "Status"), models, width))
    log.info("\n%s\n", render_table(("Option", "Value"), option_rows(options, server), width))


def tell_of_debugging(options: ServerOptions, names: Sequence[str]) -> None:
    """Warns where the model that is to be debugged is none of those that were loaded: nobody would see a debugger."""
    if options.debug is not None and options.debug not in names:
        near = closest(options.debug, names)
        meant = f", did you mean '{near}'?" if near is not None else ""
        log.warning("--debug names '%s', and no model of that name was loaded%s", options.debug, meant)


def option_rows(options: ServerOptions, server: ServerMetadata) -> list[tuple[str, str]]:
    """The options that Triton lists, under its names for them."""
    rows = [
        ("server_id", server.name),
        ("server_version", server.version),
        ("server_extensions", " ".join(server.extensions)),
    ]
    rows += [(f"model_repository_path[{n}]", path) for n, path in enumerate(options.model_repository)]
    rows.append(("model_control_mode", f"MODE_{options.model_control_mode.upper()}"))
    rows += [(f"startup_models_{n}", name) for n, name in enumerate(options.load_model)]
    rows.append(("strict_model_config", str(int(options.disable_auto_complete_config))))
    if options.model_config_name:
        rows.append(("model_config_name", options.model_config_name))
    rows.append(("rate_limit", "OFF" if options.rate_limit == "off" else "EXEC_COUNT"))
    for n, entry in enumerate(options.rate_limit_resource):
        device = -1 if entry.device is None else entry.device
        rows.append(
            (f"rate_limit_resource[{n}]", f'{{"name":"{entry.name}", "count":{entry.count} "device":{device}}}')
        )
    rows += [
        ("pinned_memory_pool_byte_size", str(options.pinned_memory_pool_byte_size)),
        ("min_supported_compute_capability", str(options.min_supported_compute_capability)),
        ("strict_readiness", str(int(options.strict_readiness))),
        ("exit_timeout", str(options.exit_timeout_secs)),
        ("cache_enabled", str(int(options.cache_config is not None))),
    ]
    return rows
