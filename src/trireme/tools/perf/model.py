"""The model under load, as its metadata and its configuration describe it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from trireme.tools.perf.errors import PerfError


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output without the batch dimension; -1 where a dimension may vary."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class ComposingModel:
    """A step of an ensemble, or a model that the model calls; with its own steps."""

    name: str
    version: str
    parts: tuple[ComposingModel, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """What a load needs to know."""

    name: str
    version: str
    max_batch_size: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    is_decoupled: bool = False
    is_sequence: bool = False
    is_cached: bool = False
    parts: tuple[ComposingModel, ...] = ()


Config = dict[str, Any]


def describe(
    metadata: dict[str, Any],
    config: Config,
    version: str,
    config_of: Callable[[str, str], Config],
    called: tuple[tuple[str, str], ...],
) -> ModelDescription:
    """Puts both together; `config_of` reads the configuration of another model, `called` are those it calls itself."""
    max_batch_size = int(config.get("max_batch_size", 0))
    optional = {entry["name"] for entry in config.get("input", ()) if entry.get("optional")}
    parts, is_sequence, is_cached = _parts(config, config_of)
    parts += tuple(ComposingModel(name, given, ()) for name, given in called)
    return ModelDescription(
        name=metadata["name"],
        version=version,
        max_batch_size=max_batch_size,
        inputs=tuple(_spec(entry, max_batch_size, optional) for entry in metadata.get("inputs", ())),
        outputs=tuple(_spec(entry, max_batch_size, optional) for entry in metadata.get("outputs", ())),
        is_decoupled=bool(config.get("model_transaction_policy", {}).get("decoupled")),
        is_sequence=is_sequence,
        is_cached=is_cached,
        parts=parts,
    )


def check_shapes(model: ModelDescription, names: Iterable[str]) -> None:
    """Raises PerfError for the first of these names that is no input of the model."""
    known = [spec.name for spec in model.inputs]
    for name in names:
        if name not in known:
            has = f"its inputs are {', '.join(known)}" if known else "it has no inputs"
            raise PerfError(f"error: --shape {name}: the model '{model.name}' has no input of that name, {has}\n")


def check_batch(model: ModelDescription, batch_size: int, is_given: bool) -> None:
    """Raises PerfError where the model takes no batches at all; too large a batch is for the server to refuse."""
    if model.max_batch_size == 0 and is_given and batch_size > 1:
        raise PerfError(
            f"can not specify batch size > 1 as the model does not support batching: '{model.name}' has no batch "
            "dimension"
        )


def _spec(entry: dict[str, Any], max_batch_size: int, optional: set[str]) -> TensorSpec:
    shape = tuple(int(dim) for dim in entry["shape"])
    return TensorSpec(
        entry["name"], entry["datatype"], shape[1:] if max_batch_size else shape, entry["name"] in optional
    )


def _parts(config: Config, config_of: Callable[[str, str], Config]) -> tuple[tuple[ComposingModel, ...], bool, bool]:
    """The steps of an ensemble with their own steps, whether sequences are kept, whether a cache answers."""
    is_sequence = "sequence_batching" in config
    is_cached = bool(config.get("response_cache", {}).get("enable"))
    found: dict[tuple[str, str], ComposingModel] = {}
    for step in config.get("ensemble_scheduling", {}).get("step", ()):
        name = step["model_name"]
        number = int(step.get("model_version", -1))
        version = "" if number == -1 else str(number)
        if (name, version) in found:
            continue
        parts, has_sequence, has_cache = _parts(config_of(name, version), config_of)
        found[name, version] = ComposingModel(name, version, parts)
        is_sequence, is_cached = is_sequence or has_sequence, is_cached or has_cache
    return tuple(found[key] for key in sorted(found)), is_sequence, is_cached
