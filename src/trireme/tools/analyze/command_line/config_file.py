"""The YAML file of an analysis: read, and its names checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trireme.core.close_names import closest
from trireme.core.reading.json_levels import DeepJsonError, read_json
from trireme.core.wording.extras import install_line
from trireme.tools.analyze.command_line.flags import ACCEPTED, FILE_ONLY, FLAGS
from trireme.tools.analyze.errors import InputError
from trireme.tools.perf.bounded_files import read_bounded

MODEL_KEYS = (
    "parameters",
    "model_config_parameters",
    "objectives",
    "constraints",
    "perf_analyzer_flags",
    "genai_perf_flags",
    "cpu_only",
    "weighting",
    "triton_server_flags",
    "triton_server_environment",
)
PARAMETER_KEYS = ("concurrency", "batch_sizes", "request_rate")
_MOST_BYTES = 16 << 20


def read_config_file(path: str) -> dict[str, Any]:
    """Settings by name; raises InputError with the place of what is wrong."""
    try:
        text = read_bounded(path, _MOST_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InputError(f"the configuration file '{path}' cannot be read: {reason}") from None
    content = _parsed(path, text)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise InputError(f"'{path}' has no settings: it begins with a {type(content).__name__}")
    check_names(content, (*FLAGS, *ACCEPTED, *FILE_ONLY), f"'{path}'")
    models = content.get("profile_models")
    if isinstance(models, Mapping):
        for name, settings in models.items():
            _check_model(path, str(name), settings)
    return content


def check_names(given: Iterable[Any], known: Iterable[str], where: str) -> None:
    """Raises InputError for a name that there is not."""
    names = list(known)
    for name in given:
        if name not in names:
            meant = closest(str(name), names)
            advice = f"; did you mean '{meant}'?" if meant else ""
            raise InputError(f"{where}: there is no setting '{name}'{advice}")


def _check_model(path: str, name: str, settings: Any) -> None:
    if settings is None:
        return
    if not isinstance(settings, Mapping):
        raise InputError(f"'{path}', model '{name}': its settings are no mapping")
    check_names(settings, MODEL_KEYS, f"'{path}', model '{name}'")
    parameters = settings.get("parameters") or {}
    if not isinstance(parameters, Mapping):
        raise InputError(f"'{path}', model '{name}': parameters is no mapping")
    check_names(parameters, PARAMETER_KEYS, f"'{path}', model '{name}', parameters")


def _parsed(path: str, text: str) -> Any:
    """By PyYAML; a file in JSON, which is YAML too, is read without it."""
    try:
        return read_json(text)
    except DeepJsonError as error:
        raise InputError(f"'{path}' cannot be read: {error}") from None
    except ValueError:
        pass
    try:
        import yaml
    except ImportError:
        raise InputError(f"reading '{path}' needs PyYAML: {install_line('analyze')}; JSON is read without") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        reason = getattr(error, "problem", None) or "it is no YAML"
        raise InputError(f"'{path}'{where}: {reason}") from None
    except RecursionError:
        raise InputError(f"'{path}' cannot be read: it is nested too deeply") from None
