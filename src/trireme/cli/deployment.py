"""The steps of `trireme deploy`: look, count, fetch, write, serve."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from trireme.cli import mpi
from trireme.cli.command_line import CommandEnded, ServerCommand, read_options
from trireme.cli.deploy_arguments import parse_arguments
from trireme.cli.serve import greeting_lines
from trireme.config.model_config import ModelConfig
from trireme.config.server_options import ServerOptions
from trireme.observe.table import render_table
from trireme.tools.deploy.hub import token_of
from trireme.tools.deploy.memory import check_fit
from trireme.tools.deploy.options import INTERRUPTED, DeployError, DeployOptions
from trireme.tools.deploy.plan import Plan, make_plan
from trireme.tools.deploy.progress import Progress, children_bytes
from trireme.tools.deploy.resolve import fetch_weights

_COMMAND = ServerCommand(
    "trireme deploy", "MODEL [options] [-- server options]", help_exit_code=0, defaults=ServerOptions()
)


def run_deploy(arguments: Sequence[str]) -> int:
    """Deploys, and serves until Ctrl+C; the exit code of the process."""
    token = token_of(os.environ)
    if token is not None:
        os.environ["HF_TOKEN"] = token  # the name that workers look for
    try:
        options, server_words = parse_arguments(arguments)
        # Read before anything is fetched, so that a wrong flag is not found out an hour later.
        server_options = read_options(_COMMAND, [f"--model-repository={options.repository}", *server_words], os.environ)
        plan = _prepared(options, server_options.devices)
    except CommandEnded as end:
        return end.exit_code
    except DeployError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("\nStopped. What was fetched is kept, and the same command goes on from there.", file=sys.stderr)
        return INTERRUPTED
    if options.is_dry_run or not options.is_served:
        return 0
    return _serve(plan, server_options)


def _prepared(options: DeployOptions, devices: str | None) -> Plan:
    """Says what will be done, and does it up to the start of the server."""
    plan = make_plan(options, devices)
    print(f"{plan.model.reference}, from {plan.model.where}, is served as '{plan.name}'")
    print(render_table(("Memory", "Size"), plan.estimate.table(plan.memory)), flush=True)
    if options.is_dry_run:
        for name, text in plan.folder.texts.items():
            print(f"\n# {plan.folder.path / name}\n{text}", end="")
    check_fit(plan.estimate, plan.memory, options)
    if options.is_dry_run:
        return plan
    plan.folder.check_name(is_overwriting=options.is_overwriting)
    fetch_weights(plan.model)
    print(plan.folder.write(is_overwriting=options.is_overwriting), flush=True)
    if not options.is_served:
        print(f"Serve it with: trireme serve {options.repository}")
    return plan


def _serve(plan: Plan, options: ServerOptions) -> int:
    reason = mpi.refusal(os.environ)
    if reason is not None:
        print(reason, file=sys.stderr)
        return 1
    # Imported late: what cannot be deployed is told before the server is read from disk.
    from trireme.app_launch import run

    progress = Progress(f"loading {plan.name}", plan.estimate.total_bytes, children_bytes)

    is_ready = False

    def greet(models: Sequence[ModelConfig]) -> None:
        nonlocal is_ready
        is_ready = True
        progress.stop(is_done=True)
        print("\n".join(greeting_lines(options, models)), flush=True)

    with progress:
        exit_code = run(options, on_ready=greet)
        progress.stop(is_done=False)  # too late where it was greeted
    return exit_code if is_ready or exit_code else INTERRUPTED
