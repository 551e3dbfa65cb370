"""`trireme serve`: the same server with a friendlier face for a person at a terminal."""

from __future__ import annotations

import ipaddress
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from trireme import __version__
from trireme.app.early_interrupt import ending_at_once
from trireme.app.listening import port_problem
from trireme.cli import mpi
from trireme.cli.command_line import ServerCommand, read_options
from trireme.cli.curl.lines import curl_lines
from trireme.cli.serving.failures import print_failures
from trireme.cli.serving.repository_folder import mistaken_folder, written_as
from trireme.config.model_config import ModelConfig
from trireme.config.nearest import nearest
from trireme.config.options.server import ServerOptions

SUMMARY = "serve the models of a repository folder"

COMMAND = ServerCommand(
    "trireme serve",
    "[REPOSITORY ...] [options]",
    help_exit_code=0,
    defaults=ServerOptions(exit_on_error=False, strict_model_outputs=True),
    takes_repositories=True,
    is_for_people=True,
)
"""One broken model does not stop the others: on a laptop its error is what the user works on."""

_ALL_INTERFACES = ("0.0.0.0", "::")
_USUAL = ServerOptions()
_USUAL_FOLDERS = ("model_repository", "models")

_EXPLANATION = """trireme serve needs a folder to serve: a repository, with one folder per model in it.
  trireme serve REPOSITORY                   a folder of yours; without a name, ./model_repository or ./models
  trireme serve examples/model_repository    the examples, in a clone of Trireme
  trireme deploy facebook/opt-125m           a model of the Hugging Face Hub
'trireme serve --help' lists every option."""


def main(arguments: Sequence[str]) -> int:
    """Serves until Ctrl+C; the exit code of the process."""
    if not _with_usual_folder(arguments) and "TRIREME_MODEL_REPOSITORY" not in os.environ:
        print(_EXPLANATION, file=sys.stderr)
        return 1
    words = ["--help" if word == "-h" else word for word in arguments]
    options = read_options(COMMAND, _with_usual_folder(words), os.environ)
    with ExitStack() as links:
        code = mpi.take_part(os.environ, links)
        if code is not None:
            return code
        reason = folder_problem(options) or _told(port_problem(options))
        if reason is not None:
            print(reason, file=sys.stderr)
            return 1
        # Imported late: a wrong flag is answered before the server is read from disk.
        with ending_at_once():
            from trireme.app.launch import run

        return run(options, on_ready=greeting(options), on_failures=print_failures)


def greeting(options: ServerOptions) -> Callable[[Sequence[ModelConfig]], None]:
    """What to call once the models are served: prints where, and a command to try for each model."""

    def print_summary(models: Sequence[ModelConfig]) -> None:
        for line in greeting_lines(options, models):
            print(line, flush=True)

    return print_summary


def greeting_lines(options: ServerOptions, models: Sequence[ModelConfig]) -> list[str]:
    """The lines of the greeting; of a model with several versions, the last one's configuration counts."""
    models = list({model.name: model for model in models}.values())
    noun = "model" if len(models) == 1 else "models"
    lines = ["", f"Trireme {__version__} serves {len(models)} {noun}. Ctrl+C stops it."]
    is_tls = options.http_use_ssl or options.http_use_ssl_mutual
    if options.allow_http:
        address = f"{_scheme(is_tls)}://{_reachable(options.http_address)}:{options.http_port}"
        lines.append(f"  HTTP     {address}")
        if options.console != "off":
            lines.append(f"  console  {address}/ in a browser")
    if options.allow_grpc:
        lines.append(f"  gRPC     {_reachable(options.grpc_address)}:{options.grpc_port}")
    if options.allow_metrics:
        address = _reachable(options.effective_metrics_address)
        scheme = _scheme(options.metrics_use_ssl or options.metrics_use_ssl_mutual)
        lines.append(f"  metrics  {scheme}://{address}:{options.metrics_port}/metrics")
    lines += openness_lines(options)
    lines += _interface_lines(options)
    if options.watch:
        folders = ", ".join(options.model_repository)
        lines.append(f"It watches {folders}: a model whose files change is loaded again, and a new folder is loaded.")
    lines += _lines_to_load(options, models)
    if options.allow_http and models:
        lines += ["", *_lines_to_try(options, models), ""]
    return lines


def _lines_to_load(options: ServerOptions, models: Sequence[ModelConfig]) -> list[str]:
    """How a server that waits to be told gets its first model, and where that has to be said."""
    if models or options.model_control_mode != "explicit" or options.load_model:
        return []
    at_start = "--load-model=NAME loads it at the start."
    if not (options.allow_http or options.allow_grpc):
        return [f"No model is loaded: {at_start}"]
    command = f"trireme models load NAME{_words_to_reach(options)}"
    return [f"No model is loaded. From another terminal '{command}' loads one; {at_start}"]


def _words_to_reach(options: ServerOptions) -> str:
    """What a command of ours is told about where the server is; nothing where it is at the usual place."""
    if options.allow_http:
        words, is_tls = "", options.http_use_ssl or options.http_use_ssl_mutual
        address, port, usual_port = options.http_address, options.http_port, _USUAL.http_port
    else:
        words, is_tls = " --grpc", options.grpc_use_ssl or options.grpc_use_ssl_mutual
        address, port, usual_port = options.grpc_address, options.grpc_port, _USUAL.grpc_port
    host = _reachable(address)
    if not is_tls and port == usual_port and host in ("localhost", "127.0.0.1"):
        return words
    return f"{words} -u {'https://' if is_tls else ''}{host}:{port}"


def openness_lines(options: ServerOptions) -> list[str]:
    """A sentence for a server that everybody may use who reaches it, from other machines."""
    services = (
        (options.allow_http, options.http_address),
        (options.allow_grpc, options.grpc_address),
        (options.allow_metrics, options.effective_metrics_address),
    )
    is_reachable = any(is_served and not _is_loopback(address) for is_served, address in services)
    if options.api_keys is not None or not is_reachable:
        return []
    return ["No keys are asked for: whoever reaches these ports can use everything (see --api-keys, docs/security.md)."]


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _lines_to_try(options: ServerOptions, models: Sequence[ModelConfig]) -> list[str]:
    is_tls = options.http_use_ssl or options.http_use_ssl_mutual
    scheme = "https://" if is_tls else ""
    lines = curl_lines(f"{scheme}{_reachable(options.http_address)}:{options.http_port}", models)
    if options.api_keys is None:
        return ["Try it from another terminal:", *lines]
    with_key = r'\1curl -H "Authorization: Bearer $TRIREME_API_KEY" '
    return [
        "Try it from another terminal, with a key in TRIREME_API_KEY (trireme keys new):",
        *(re.sub(r"(^|\| )curl ", with_key, line, count=1) for line in lines),
    ]


def _scheme(is_tls: bool) -> str:
    return "https" if is_tls else "http"


def _interface_lines(options: ServerOptions) -> list[str]:
    """A sentence for a server that other machines can reach, with the flags that change it; where metrics listen
    follows HTTP unless their own flag says it."""
    metrics_flag = "--metrics-address" if options.metrics_address else "--http-address"
    services = (
        (options.allow_http, options.http_address, "--http-address"),
        (options.allow_grpc, options.grpc_address, "--grpc-address"),
        (options.allow_metrics, options.effective_metrics_address, metrics_flag),
    )
    flags = dict.fromkeys(flag for is_on, address, flag in services if is_on and address in _ALL_INTERFACES)
    if not flags:
        return []
    listed = " ".join(f"{flag} 127.0.0.1" for flag in flags)
    return [f"It listens on all interfaces: other machines can reach it. To keep it here: {listed}"]


def _reachable(address: str) -> str:
    """An address that a client on this machine can use."""
    if address in _ALL_INTERFACES:
        return "localhost"
    return f"[{address}]" if ":" in address else address


def _with_usual_folder(arguments: Sequence[str]) -> Sequence[str]:
    """Without any argument, a folder with a usual name is served."""
    if arguments or "TRIREME_MODEL_REPOSITORY" in os.environ:
        return arguments
    return next(([name] for name in _USUAL_FOLDERS if Path(name).is_dir()), arguments)


def folder_problem(options: ServerOptions) -> str | None:
    """What is wrong with the folders that are to be served, before anything is loaded from them."""
    for path in map(Path, options.model_repository):
        if not os.path.isdir(path):
            return f"error: {_no_folder(path)}"
        try:
            if (mistaken := mistaken_folder(path)) is not None:
                return f"error: {mistaken.text}. Say\n  trireme serve {mistaken.repository}"
            is_empty = not any(os.path.isdir(entry) and not entry.name.startswith(".") for entry in path.iterdir())
        except OSError as error:
            return f"error: the folder '{path}' cannot be read: {error.strerror}"
        if is_empty and options.model_control_mode == "none":
            return f"error: there is no model in '{path}'. Make one, and serve it:\n  {_first_model(path)}"
    return None


def _no_folder(path: Path) -> str:
    """What may have been meant by a path that no folder has."""
    is_file = os.path.isfile(path)
    what = f"'{path}' is a file, and no folder." if is_file else f"there is no folder '{path}'."
    what += " A repository is a folder with one folder per model in it."
    absolute = path.absolute()
    if is_file:
        folders = [folder for folder in absolute.parents[:2] if (folder / "config.pbtxt").is_file()]
        return f"{what} Say\n  trireme serve {written_as(path, folders[0].parent)}" if folders else what
    if os.path.isdir(absolute.parent):
        close = nearest(path.name, _folders_in(absolute.parent))
        return f"{what} Did you mean '{path.with_name(close)}'?" if close is not None else what
    return f"{what} A model of the Hugging Face Hub is served by\n  trireme deploy {path}" if _is_hub_id(path) else what


def _folders_in(parent: Path) -> list[str]:
    """None of a folder that may not be read."""
    try:
        return [entry.name for entry in parent.iterdir() if os.path.isdir(entry)]
    except OSError:
        return []


def _is_hub_id(path: Path) -> bool:
    return len(path.parts) == 2 and path.parts[0] not in (".", "..", "/", "~")


def _first_model(path: Path) -> str:
    return f"trireme new my_model --repository {path}    # 'trireme new --help' lists what there are templates for"


def _told(problem: str | None) -> str | None:
    return None if problem is None else f"error: {problem}"
