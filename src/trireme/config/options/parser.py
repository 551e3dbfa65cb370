"""The command line and the environment to `ServerOptions`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trireme.config.options.conflicts import check_conflicts, unused_certificates
from trireme.config.options.deprecated import DeprecatedOption
from trireme.config.options.option import Option, OptionError, OptionStatus
from trireme.config.options.scanner import Occurrence, scan
from trireme.config.options.server import ServerOptions, server_options
from trireme.config.options.values import PORT


@dataclass(frozen=True, slots=True)
class ParsedOptions:
    """What was asked for, and what to say about how it was asked for."""

    options: ServerOptions
    deprecations: tuple[str, ...]
    """Sentences for stderr about old flags."""


def parse_options(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    *,
    program: str = "tritonserver",
    defaults: ServerOptions | None = None,
    takes_repositories: bool = False,
) -> ParsedOptions:
    """Reads flags, then the environment for options without a flag; raises OptionError or HelpRequested.

    `takes_repositories` lets words that are no options name model repositories.
    """
    occurrences, positionals = scan(arguments, program)
    if positionals and not takes_repositories:
        raise OptionError(f"Unexpected argument: {positionals[0]}")
    by_flag = {entry.flag: entry for entry in server_options()}
    if takes_repositories:
        occurrences = [Occurrence(by_flag["model-repository"], word) for word in positionals] + occurrences
    texts, deprecations = _translated(occurrences)
    values = {by_flag[flag].field_name: _value(by_flag[flag], given) for flag, given in texts.items()}
    for entry in server_options():
        if entry.flag not in texts and entry.environment in environ:
            values.update(_from_environment(entry, environ[entry.environment]))
    options = replace(defaults or ServerOptions(), **{**_vertex_ai_values(environ), **values})
    if options.allow_vertex_ai and not options.model_repository and environ.get("AIP_STORAGE_URI"):
        options = replace(options, model_repository=(environ["AIP_STORAGE_URI"],))
    options = _watching(options, values)
    check_conflicts(options)
    return ParsedOptions(replace(options, notices=_notices(options)), tuple(deprecations))


def _watching(options: ServerOptions, values: Mapping[str, Any]) -> ServerOptions:
    """With what `--watch` stands for."""
    if not options.watch:
        return options
    mode = values.get("model_control_mode", "poll")
    if mode != "poll":
        raise OptionError(
            f"--watch is --model-control-mode=poll, and {mode} was asked for; leave out one of the two",
            shows_usage=False,
        )
    return replace(options, model_control_mode="poll", repository_poll_secs=values.get("repository_poll_secs", 1))


def _vertex_ai_values(environ: Mapping[str, str]) -> dict[str, Any]:
    """What the environment of a Vertex AI prediction chooses where no option does."""
    values: dict[str, Any] = {}
    if environ.get("AIP_MODE") == "PREDICTION":
        values = {"allow_vertex_ai": True, "allow_http": False, "allow_grpc": False}
    port = environ.get("AIP_HTTP_PORT")
    if port:
        values["vertex_ai_port"] = PORT.read(port, "vertex-ai-port")
    return values


def _translated(occurrences: Sequence[Occurrence]) -> tuple[dict[str, list[str]], list[str]]:
    """The texts given for each present flag, with old flags turned into new ones."""
    texts: dict[str, list[str]] = {}
    deprecations: list[str] = []
    flags = {occurrence.option.flag for occurrence in occurrences}
    for option, text in occurrences:
        if isinstance(option, DeprecatedOption):
            option.kind.read(text, option.flag)
            deprecations.append(option.warning(text))
            texts.setdefault(option.new_flag, []).append(option.translate(text))
        else:
            texts.setdefault(option.flag, []).append(text)
    if {"response-cache-byte-size", "cache-config"} <= flags:
        raise OptionError(
            "Error: Incompatible flags --response-cache-byte-size and --cache-config both provided. "
            "Please provide one or the other."
        )
    return texts, deprecations


def _value(entry: Option, texts: Sequence[str]) -> Any:
    values = [entry.kind.read(text, entry.flag) for text in texts]
    return values[-1] if entry.kind.gather is None else entry.kind.gather(values, entry.flag)


def _from_environment(entry: Option, text: str) -> dict[str, Any]:
    # Kubernetes writes TRIREME_HTTP_PORT=tcp://10.0.0.1:80 for a service that is called trireme-http.
    if text.startswith(("tcp://", "udp://")) and entry.flag.endswith("-port"):
        return {}
    try:
        return {entry.field_name: _value(entry, shlex.split(text) if entry.can_repeat else [text])}
    except (OptionError, ValueError) as error:
        why = error.why if isinstance(error, OptionError) else str(error)
        raise OptionError(f"{why} (from the environment variable {entry.environment})", entry.flag) from None


def _notices(options: ServerOptions) -> tuple[str, ...]:
    notices = [
        f"--{entry.flag} has no effect: {entry.reason}"
        for entry in server_options()
        if entry.status is OptionStatus.IGNORED and entry.asks_for_something(getattr(options, entry.field_name))
    ]
    notices += [f"--metrics-config has no setting '{name}'; ignored" for name in options.metrics_config.unknown]
    return (*notices, *unused_certificates(options))
