"""The steps of `trireme deploy`: look, count, fetch, write, serve."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence

from trireme.app.listening import port_problem
from trireme.cli.deployment.arguments import parse_arguments, read_server_options
from trireme.cli.deployment.serving import LOADING_ALL, serve_deployed, warn
from trireme.cli.endings import CommandEnded
from trireme.config.options.server import ServerOptions
from trireme.core.exit_codes import INTERRUPTED
from trireme.observe.terminal.appearance import line_width
from trireme.observe.terminal.table import render_table
from trireme.tools.deploy.checks.task import is_conversing, is_engine_served
from trireme.tools.deploy.hub.hub import token_of
from trireme.tools.deploy.hub.resolve import fetch_weights
from trireme.tools.deploy.memory.estimate import check_fit
from trireme.tools.deploy.memory.other_models import other_model_rows, other_models
from trireme.tools.deploy.options import DeployError, DeployOptions
from trireme.tools.deploy.plan import Plan, check_loading, make_plan


def _check_ports(options: ServerOptions) -> None:
    problem = port_problem(options)
    if problem is not None:
        raise DeployError(problem)


def run_deploy(arguments: Sequence[str]) -> int:
    """Deploys, and serves until Ctrl+C; the exit code of the process."""
    token = token_of(os.environ)
    if token is not None:
        os.environ["HF_TOKEN"] = token  # the name that workers look for
    try:
        options, server_words = parse_arguments(arguments)
        # Read before anything is fetched, so that a wrong flag is not found out an hour later.
        server_options = read_server_options(options.repository, server_words, os.environ)
        plan, warnings = _prepared(options, server_options)
    except CommandEnded as end:
        return end.exit_code
    except DeployError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("\nStopped. Files that were fetched whole are kept; the same command fetches the rest.", file=sys.stderr)
        return INTERRUPTED
    if options.is_dry_run or not options.is_served:
        return 0
    return serve_deployed(plan, warnings, server_options)


def _prepared(options: DeployOptions, server_options: ServerOptions) -> tuple[Plan, list[str]]:
    """Says what will be done, and does it up to the start of the server; with warnings to repeat at the end."""
    plan = make_plan(options, server_options.devices)
    if options.is_served and not options.is_dry_run:  # behind the model, whose name may be wrong, before it is fetched
        _check_ports(server_options)
    warnings = check_loading(plan, options)
    _print_plan(plan, options, loads_all=server_options.model_control_mode in LOADING_ALL)
    check_fit(plan.estimate, plan.memory, options)
    for sentence in warnings:
        warn(sentence)
    if options.is_dry_run:
        return plan, warnings
    plan.folder.check_place()
    plan.folder.check_name(is_overwriting=options.is_overwriting)
    fetch_weights(plan.model)
    written = plan.folder.write(is_overwriting=options.is_overwriting)
    print(written.told, flush=True)
    if not options.is_served:
        print(f"Serve it with: trireme serve {shlex.quote(str(options.repository))}", flush=True)
        warn(written.warning)
    return plan, [*warnings, *([written.warning] if written.warning else [])]


def _print_plan(plan: Plan, options: DeployOptions, *, loads_all: bool) -> None:
    print(f"{plan.model.reference}, from {plan.model.where}, is served as '{plan.name}'")
    others = other_models(options.repository, plan.name) if loads_all else []
    rows = [*plan.estimate.table(plan.memory), *other_model_rows(others)]
    print(render_table(("Memory", "Size"), rows, line_width(sys.stdout)), flush=True)
    if is_engine_served(plan.model, options, plan.memory.device):
        print("The engine for language models serves it: send 'text_input' to go on with, or 'messages' to chat.")
    elif is_conversing(plan.model, options):
        print("Its chat template writes the prompts: send 'messages'. --no-chat takes prompts as they are.")
    if options.is_dry_run:
        for name, text in plan.folder.texts.items():
            print(f"\n# {plan.folder.path / name}\n{text}", end="", flush=True)
