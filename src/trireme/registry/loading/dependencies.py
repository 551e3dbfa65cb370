"""Ensembles and the models they are made of: who needs whom, and what is wrong when one is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from trireme.core.errors import InvalidArgumentError
from trireme.registry.lifecycle import ModelRecord, PolledModel
from trireme.registry.repository.repositories import ModelId
from trireme.registry.served_models import ServedModels

Graph = Mapping[ModelId, Sequence[ModelId]]
"""From an ensemble to its composing models, among the models of one plan."""


def graph_of(plan: Mapping[ModelId, PolledModel]) -> dict[ModelId, list[ModelId]]:
    """The dependencies of a plan's models that are part of the plan themselves."""
    return {
        model_id: [found for name in polled.dependencies if (found := _match(plan, model_id.namespace, name))]
        for model_id, polled in plan.items()
    }


def _match(plan: Mapping[ModelId, PolledModel], namespace: str, name: str) -> ModelId | None:
    beside = ModelId(namespace, name)
    if beside in plan:
        return beside
    others = [model_id for model_id in plan if model_id.name == name]
    return others[0] if len(others) == 1 else None


def parts_of(plan: Mapping[ModelId, PolledModel]) -> list[dict[ModelId, PolledModel]]:
    """The plan in parts, of which none needs a model of another."""
    neighbours: dict[ModelId, set[ModelId]] = {model_id: set() for model_id in plan}
    for model_id, direct in graph_of(plan).items():
        for needed in direct:
            neighbours[model_id].add(needed)
            neighbours[needed].add(model_id)
    together = {model_id: [*direct] for model_id, direct in neighbours.items()}
    parts: list[dict[ModelId, PolledModel]] = []
    placed: set[ModelId] = set()
    for model_id in plan:
        if model_id not in placed:
            reached = {model_id, *_reachable(together, [model_id])}
            placed |= reached
            parts.append({member: polled for member, polled in plan.items() if member in reached})
    return parts


def circles(graph: Graph) -> dict[ModelId, str]:
    """Every model that needs itself, directly or through others, with the sentence that says so."""
    found = {}
    for model_id, direct in graph.items():
        reached = _reachable(graph, direct)
        if model_id in reached:
            last = next(other for other in (*direct, *reached) if model_id in graph.get(other, ()))
            found[model_id] = (
                f"circular dependency between ensembles: {model_id.name} -> ... -> {last.name} -> {model_id.name}"
            )
    return found


def _reachable(graph: Graph, start: Iterable[ModelId]) -> dict[ModelId, None]:
    reached: dict[ModelId, None] = {}
    pending = list(start)
    while pending:
        model_id = pending.pop()
        if model_id not in reached:
            reached[model_id] = None
            pending.extend(graph.get(model_id, ()))
    return reached


def dependents(models: ServedModels, name: str) -> list[ModelRecord]:
    """The ensembles that are wanted and have a step with this model, in a settled order."""
    found = [record for record in models.records.values() if record.is_wanted and name in record.dependencies]
    return sorted(found, key=lambda record: record.id)


def related_names(models: ServedModels, name: str) -> set[str]:
    """The name, all that its ensembles need, and all ensembles that need it."""
    names = {name}
    pending = [name]
    while pending:
        for record in dependents(models, pending.pop()):
            if record.id.name not in names:
                names.add(record.id.name)
                pending.append(record.id.name)
    pending = [name]
    while pending:
        for record in models.named(pending.pop()):
            fresh = [needed for needed in record.dependencies if needed not in names]
            names.update(fresh)
            pending.extend(fresh)
    return names


def check_available(models: ServedModels, polled: PolledModel) -> None:
    """Raises InvalidArgumentError where a composing model is unknown, failed, or lacks the version asked for."""
    name, namespace = polled.id.name, polled.id.namespace
    missing = [needed for needed in polled.dependencies if models.match(namespace, needed) is None]
    if missing:
        raise InvalidEnsembleError(
            f"ensemble {name} contains models that are not available or ambiguous: {', '.join(missing)}"
        )
    for step in polled.message.ensemble_scheduling.step:
        record = models.match(namespace, step.model_name)
        assert record is not None
        if record.is_invalid:
            raise InvalidEnsembleError(
                f"ensemble '{name}' depends on '{step.model_name}' which is not valid. "
                f"Model '{step.model_name}' failed with error: {record.failure}"
            )
        ready = [model.version for model in record.ready_models]
        if not ready:
            reason = f" Model '{step.model_name}' loading failed with error: {record.failure}" if record.failure else ""
            raise InvalidArgumentError(
                f"ensemble '{name}' depends on '{step.model_name}' which has no loaded version.{reason}"
            )
        if step.model_version != -1 and step.model_version not in ready:
            raise InvalidArgumentError(
                f"ensemble '{name}' depends on '{step.model_name}' "
                f"whose required version {step.model_version} is not loaded."
            )


class InvalidEnsembleError(InvalidArgumentError):
    """The ensemble cannot exist as it is configured, whatever its composing models do."""
