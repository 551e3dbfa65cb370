"""Ensembles against the models that they are made of."""

from __future__ import annotations

from collections.abc import Mapping

from trireme.app.config_check.checked_model import CheckedModel
from trireme.config.message import ConfigMessage
from trireme.config.nearest import meant
from trireme.config.validation.ensemble_links import link_problems, resolve_ensemble
from trireme.config.validation.problem import Problem, collecting
from trireme.registry.loading.dependencies import circles
from trireme.registry.repository.repositories import ModelId


def check_ensembles(models: Mapping[str, CheckedModel]) -> None:
    """Adds what is wrong with the ensembles among the models of one repository, which are here by name."""
    ensembles = {name: model for name, model in models.items() if _steps_of(model)}
    graph = {
        ModelId("", name): [ModelId("", needed) for needed in _steps_of(model) if needed in models]
        for name, model in ensembles.items()
    }
    circular = {model_id.name: text for model_id, text in circles(graph).items()}
    for name in circular:
        ensembles[name].add(Problem(circular[name], "ensemble_scheduling"))
    for name in _in_order(ensembles):
        if name not in circular:
            _check(ensembles[name], models)


def _in_order(ensembles: Mapping[str, CheckedModel]) -> list[str]:
    """Those that others need first, so that what is wrong with one is known when the others are asked."""
    done: dict[str, None] = {}

    def visit(name: str, path: frozenset[str]) -> None:
        if name in ensembles and name not in done and name not in path:
            for needed in _steps_of(ensembles[name]):
                visit(needed, path | {name})
            done[name] = None

    for name in ensembles:
        visit(name, frozenset())
    return list(done)


def _steps_of(model: CheckedModel) -> list[str]:
    message = model.message
    return [] if message is None else [step.model_name for step in message.ensemble_scheduling.step if step.model_name]


def _check(model: CheckedModel, models: Mapping[str, CheckedModel]) -> None:
    message = model.message
    assert message is not None
    composing: dict[str, ConfigMessage] = {}
    for index, step in enumerate(message.ensemble_scheduling.step):
        if not step.model_name:
            continue
        place = f"ensemble_scheduling.step[{index}].model_name"
        found = models.get(step.model_name)
        if found is None:
            near = meant(step.model_name, [name for name in models if name != model.name])
            text = f"ensemble {model.name} contains models that are not available or ambiguous: {step.model_name}"
            model.add(Problem(f"{text}{near or '; there is no such folder beside it'}", place))
        elif not found.is_ok:
            text = f"ensemble '{model.name}' depends on '{step.model_name}' which has no loaded version."
            model.add(Problem(text, place, f"mend '{step.model_name}' first"))
        elif step.model_version != -1 and step.model_version not in found.versions:
            have = ", ".join(map(str, found.versions))
            model.add(
                Problem(
                    f"ensemble '{model.name}' depends on '{step.model_name}' whose required version "
                    f"{step.model_version} is not loaded.",
                    f"ensemble_scheduling.step[{index}].model_version",
                    f"its versions are {have}; model_version: -1 is the newest",
                )
            )
        elif found.final is not None and found.has_tensors:
            composing[step.model_name] = found.final
    problems = list(link_problems(message, composing))
    if not problems and model.is_ok and len(composing) == len(set(_steps_of(model))):
        with collecting(problems, "ensemble_scheduling"):
            resolve_ensemble(message, composing)
    for problem in problems:
        model.add(problem)
