"""The last step of `trireme deploy`: the server, which is there for one model and has to say what became of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from trireme.app.early_interrupt import ending_at_once
from trireme.cli import mpi
from trireme.cli.serve import greeting_lines
from trireme.config.model_config import ModelConfig
from trireme.config.options.server import ServerOptions
from trireme.core.errors import UnavailableError
from trireme.core.exit_codes import INTERRUPTED
from trireme.core.load_failure import LoadFailure
from trireme.tools.deploy.plan import Plan
from trireme.tools.deploy.progress import Progress, children_bytes

LOADING_ALL = ("none", "poll")
"""Modes in which the server loads every model of the repository at its start."""


def warn(sentence: str | None) -> None:
    """Prints the sentence as a warning, where there is one."""
    if sentence is not None:
        print(f"warning: {sentence}", file=sys.stderr, flush=True)


def serve_deployed(plan: Plan, warnings: Sequence[str], options: ServerOptions) -> int:
    """Serves until Ctrl+C; the exit code, which is not 0 where the model that was deployed could not be loaded."""
    reason = mpi.refusal(os.environ)
    if reason is not None:
        print(reason, file=sys.stderr)
        return 1
    # Imported late: what cannot be deployed is told before the server is read from disk.
    with ending_at_once():
        from trireme.app.launch import run

    failures: dict[str, LoadFailure] = {}
    progress = Progress(f"loading {plan.name}", plan.estimate.total_bytes, children_bytes)
    is_ready = False

    def print_summary(models: Sequence[ModelConfig]) -> None:
        nonlocal is_ready
        if _is_missing(plan.name, models, options):
            raise UnavailableError(f"'{plan.name}' is not served, so the server ends")
        is_ready = True
        progress.stop("done")
        print("\n".join(greeting_lines(options, models)), flush=True)
        served = {model.name for model in models}
        for name, failure in failures.items():
            if name not in served:
                warn(f"another model of the repository, '{name}', could not be loaded: {failure.text.strip()}")
        for sentence in warnings:
            warn(sentence)

    def note(failed: Sequence[LoadFailure]) -> None:
        failures.update({failure.name: failure for failure in failed})

    with progress:
        exit_code = run(options, on_ready=print_summary, on_failures=note)
        progress.stop("failed" if exit_code else "interrupted")  # too late where it was greeted
    if not is_ready and exit_code:
        for sentence in warnings:
            warn(sentence)
        for failure in failures.values():  # where in the code it was; the last line has the cause
            print("\n".join(failure.text.strip().splitlines()[1:]), file=sys.stderr)
        cause = _cause(plan.name, failures, exits_on_error=options.exit_on_error)
        print(f"error: '{plan.name}' could not be deployed: {cause}", file=sys.stderr, flush=True)
    return exit_code if is_ready or exit_code else INTERRUPTED


def _is_missing(name: str, models: Sequence[ModelConfig], options: ServerOptions) -> bool:
    """Whether the model should have been loaded at the start, and was not."""
    return options.model_control_mode in LOADING_ALL and all(model.name != name for model in models)


def _cause(name: str, failures: Mapping[str, LoadFailure], *, exits_on_error: bool) -> str:
    """Why the server with this model did not come up."""
    if name in failures:
        return failures[name].cause
    if failures and exits_on_error:
        others = "; ".join(f"'{failure.name}': {failure.cause}" for failure in failures.values())
        return f"other models of the repository could not be loaded: {others}"
    return "the server could not start; its error is above"
