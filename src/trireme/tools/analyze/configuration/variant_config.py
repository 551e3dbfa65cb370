"""A variant of a model's configuration: what a setting changes, and how the variant is described."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

from trireme.tools.analyze.trial import Setting

Config = Mapping[str, Any]
LLM_BACKEND = "llm"
_ENGINE_LIMITS = ("max_sequences", "max_step_tokens")


def variant_config(own: Config, setting: Setting, is_cpu_only: bool = False) -> dict[str, Any]:
    """The whole configuration, as a load takes it. `own` is not modified."""
    config = copy.deepcopy(dict(own))
    if setting.max_batch_size is not None:
        _set_batching(config, int(own.get("max_batch_size", 0)), setting.max_batch_size)
    if setting.instances is not None or is_cpu_only:
        config["instance_group"] = [_group(own, setting.instances, is_cpu_only)]
    for name in _ENGINE_LIMITS:
        value = getattr(setting, name)
        if value is not None:
            config.setdefault("parameters", {})[name] = {"string_value": str(value)}
    if setting.other:
        config.update(json.loads(setting.other))
    return config


def is_same(one: Config, other: Config) -> bool:
    """Whether a server does the same with both: names of groups and values that are there anyway do not count."""
    return _essence(one) == _essence(other)


def can_batch(config: Config) -> bool:
    """Whether the model has a batch dimension."""
    return int(config.get("max_batch_size", 0)) > 0


def is_batching(config: Config) -> bool:
    """Whether the server joins requests."""
    return "dynamic_batching" in config


def is_ensemble(config: Config) -> bool:
    return "ensemble_scheduling" in config


def is_language_model(config: Config) -> bool:
    return config.get("backend") == LLM_BACKEND


def steps_of(config: Config) -> list[str]:
    """The models of an ensemble, each once."""
    names = [step["model_name"] for step in config.get("ensemble_scheduling", {}).get("step", ())]
    return list(dict.fromkeys(names))


def instance_count(config: Config) -> int:
    """All instances, over all groups and devices."""
    return sum(int(group.get("count", 1)) * max(1, len(group.get("gpus", ()))) for group in _groups(config))


def instance_text(config: Config) -> str:
    """`2:CPU`, or `1:GPU + 2:CPU`."""
    counts: dict[str, int] = {}
    for group in _groups(config):
        kind = _kind(group)
        counts[kind] = counts.get(kind, 0) + int(group.get("count", 1)) * max(1, len(group.get("gpus", ())))
    return " + ".join(f"{count}:{kind}" for kind, count in counts.items())


def engine_limits(config: Config) -> dict[str, str]:
    """The limits of a language model's engine that the configuration states."""
    parameters = config.get("parameters", {})
    return {name: parameters[name].get("string_value", "") for name in _ENGINE_LIMITS if name in parameters}


def _essence(config: Config) -> dict[str, Any]:
    batching = config.get("dynamic_batching", {})
    found: dict[str, Any] = _said({name: value for name, value in config.items() if name != "dynamic_batching"})
    found["instance_group"] = [
        {**_said({name: value for name, value in group.items() if name != "name"}), "kind": _kind(group)}
        for group in _groups(config)
    ]
    if is_batching(config):
        is_anyway = list(batching.get("preferred_batch_size", ())) == [config.get("max_batch_size")]
        found["dynamic_batching"] = _said(
            {name: value for name, value in batching.items() if name != "preferred_batch_size" or not is_anyway}
        )
    return found


def _said(value: Any) -> Any:
    """Without what is empty, false or 0."""
    if isinstance(value, Mapping):
        kept = {name: _said(inner) for name, inner in value.items()}
        return {name: inner for name, inner in kept.items() if inner not in (None, "", "0", 0, False, [], {})}
    return [_said(inner) for inner in value] if isinstance(value, list | tuple) else value


def _groups(config: Config) -> list[Mapping[str, Any]]:
    return list(config.get("instance_group", ())) or [{"count": 1, "kind": "KIND_CPU"}]


def _kind(group: Mapping[str, Any]) -> str:
    kind = str(group.get("kind", "KIND_CPU")).removeprefix("KIND_")
    return ("GPU" if group.get("gpus") else "CPU") if kind == "AUTO" else kind


def _group(own: Config, instances: int | None, is_cpu_only: bool) -> dict[str, Any]:
    """One group in place of all: the first one's kind and devices, with another count."""
    first = _groups(own)[0]
    group: dict[str, Any] = {"count": int(first.get("count", 1)) if instances is None else instances}
    if is_cpu_only:
        return {**group, "kind": "KIND_CPU"}
    kept = ("kind", "gpus", "profile", "passive", "host_policy", "secondary_devices", "rate_limiter")
    return {**{name: first[name] for name in kept if name in first}, **group}


def _set_batching(config: dict[str, Any], before: int, size: int) -> None:
    """The largest batch, and requests joined to batches where nothing else decides that."""
    config["max_batch_size"] = size
    if size == 0:
        config.pop("dynamic_batching", None)
        return
    if "sequence_batching" in config or "ensemble_scheduling" in config:
        return
    batching = config.setdefault("dynamic_batching", {})
    preferred = [int(value) for value in batching.get("preferred_batch_size", ())]
    kept = [value for value in preferred if value <= size]
    if kept and preferred != [before]:  # the server itself says the largest batch where none is preferred
        batching["preferred_batch_size"] = kept
    else:
        batching.pop("preferred_batch_size", None)
