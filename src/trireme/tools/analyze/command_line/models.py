"""The models of an analysis with their own goals, loads and flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trireme.tools.analyze.command_line.slo import read_constraint, read_objective
from trireme.tools.analyze.command_line.values import Values, number
from trireme.tools.analyze.errors import InputError
from trireme.tools.analyze.metrics import known_tag
from trireme.tools.analyze.options import Constraint, Goals, ModelOptions

_PERF_FLAGS = ("shape", "input_data", "string_length", "string_data")
_OURS = (
    "latency-report-file",
    "concurrency-range",
    "batch-size",
    "model-name",
    "measurement-mode",
    "measurement-request-count",
    "measurement-interval",
    "service-kind",
    "triton-server-directory",
    "model-repository",
    "protocol",
    "url",
    "verbose-csv",
    "collect-metrics",
)
"""Flags of the load generator that the analysis decides."""


def read_models(values: Values, positional: Sequence[str]) -> tuple[ModelOptions, ...]:
    """Words of the command line come before those of the file; raises InputError."""
    given = values.raw("profile_models")
    own: dict[str, Mapping[str, Any]] = {}
    if isinstance(given, Mapping):
        own = {str(name): settings or {} for name, settings in given.items()}
    elif isinstance(given, list) and any(isinstance(one, Mapping) for one in given):
        for one in given:
            own.update(
                {str(name): settings or {} for name, settings in one.items()}
                if isinstance(one, Mapping)
                else {str(one): {}}
            )
    else:
        own = {name: {} for name in values.words("profile_models")}
    if positional:
        own = {name: own.get(name, {}) for name in positional}
    return tuple(_model(name, settings, values) for name, settings in own.items())


def read_goals(values: Values, own: Mapping[str, Any] | None = None) -> Goals:
    """A model's own before those of all."""
    own = own or {}
    objectives = own.get("objectives", values.raw("objectives"))
    constraints = own.get("constraints", values.raw("constraints"))
    wanted = _objectives(objectives) if objectives is not None else {}
    for text in values.texts("objective"):
        wanted.update([read_objective(text)])
    found = _constraints(constraints) if constraints is not None else []
    if "latency_budget" in values:
        found.append(Constraint("perf_latency_p99", most=values.number("latency_budget", 0)))
    if "min_throughput" in values:
        found.append(Constraint("perf_throughput", least=values.number("min_throughput", 0)))
    found += [read_constraint(constraint) for text in values.texts("slo") for constraint in text.split(",")]
    return Goals(wanted, tuple(found))


def perf_words(flags: Any, where: str) -> tuple[str, ...]:
    """Words for the load generator, from a mapping of flags to values."""
    if flags is None:
        return ()
    if not isinstance(flags, Mapping):
        raise InputError(f"{where} is a mapping of flags and values, not {flags!r}")
    words: list[str] = []
    for name, value in flags.items():
        name = str(name)
        if name in _OURS or value is False or value is None:
            continue
        flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
        for one in value if isinstance(value, list) else [value]:
            words += [flag] if one is True or one == "" else [flag, str(one)]
    return tuple(words)


def _model(name: str, own: Mapping[str, Any], values: Values) -> ModelOptions:
    parameters = Values({**_loads(values), **(own.get("parameters") or {})})
    flags = [
        *perf_words(values.raw("perf_analyzer_flags"), "perf_analyzer_flags"),
        *perf_words(values.raw("genai_perf_flags"), "genai_perf_flags"),
        *perf_words(own.get("perf_analyzer_flags"), f"model '{name}', perf_analyzer_flags"),
        *perf_words(own.get("genai_perf_flags"), f"model '{name}', genai_perf_flags"),
    ]
    for flag in _PERF_FLAGS:
        for text in values.texts(flag):
            flags += [f"--{flag.replace('_', '-')}", text]
    config = own.get("model_config_parameters")
    if config is not None and not isinstance(config, Mapping):
        raise InputError(f"model '{name}': model_config_parameters is a mapping, not {config!r}")
    weighting = own.get("weighting", values.raw("weighting"))
    return ModelOptions(
        name=name,
        goals=read_goals(values, own),
        weighting=1.0 if weighting is None else number("weighting", weighting, 1e-9),
        concurrencies=tuple(sorted({int(one) for one in parameters.numbers("concurrency")})),
        batch_sizes=tuple(sorted({int(one) for one in parameters.numbers("batch_sizes")})) or (1,),
        request_rates=tuple(sorted(set(parameters.numbers("request_rate", 1e-3)))),
        config_parameters=config,
        perf_flags=tuple(flags),
        is_cpu_only=Values(own).is_on("cpu_only"),
    )


def _loads(values: Values) -> dict[str, Any]:
    names = ("concurrency", "batch_sizes", "request_rate")
    return {name: values.raw(name) for name in names if name in values}


def _objectives(given: Any) -> dict[str, float]:
    if isinstance(given, Mapping):
        return dict(read_objective(f"{tag}:{weight}") for tag, weight in given.items())
    if isinstance(given, (list, str)):
        words = given.split(",") if isinstance(given, str) else [str(one) for one in given]
        return dict(read_objective(word) for word in words)
    raise InputError(f"objectives are a list of tags, or tags with weights, not {given!r}")


def _constraints(given: Any) -> list[Constraint]:
    if not isinstance(given, Mapping):
        raise InputError(f"constraints are metrics with min or max, not {given!r}")
    found = []
    for name, bounds in given.items():
        tag = known_tag(str(name))
        if tag is None:
            raise InputError(f"constraints: there is no metric '{name}'")
        if not isinstance(bounds, Mapping) or not set(bounds) <= {"min", "max"}:
            raise InputError(f"constraints: {name} has min or max, not {bounds!r}")
        least, most = bounds.get("min"), bounds.get("max")
        found.append(
            Constraint(
                tag,
                None if least is None else number(f"constraints: {name}: min", least),
                None if most is None else number(f"constraints: {name}: max", most),
            )
        )
    return found
