"""Everything that is known about a deployment before it is done."""

from __future__ import annotations

from dataclasses import dataclass

from trireme.tools.deploy.checks.problems import Problem, find_problems
from trireme.tools.deploy.checks.task import checked_task, is_engine_served, is_generating
from trireme.tools.deploy.folder.model_folder import ModelFolder
from trireme.tools.deploy.folder.texts import folder_of
from trireme.tools.deploy.hub.model_files import ModelFiles
from trireme.tools.deploy.hub.resolve import find_model, served_name
from trireme.tools.deploy.hub.weights import weigh
from trireme.tools.deploy.memory.device import DeviceMemory, device_memory
from trireme.tools.deploy.memory.dtype import chosen_dtype
from trireme.tools.deploy.memory.estimate import Estimate, estimate
from trireme.tools.deploy.memory.few_bits import counted_apart
from trireme.tools.deploy.options import DeployOptions, ModelNotUsableError


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be served, from where, and what it takes."""

    name: str
    model: ModelFiles
    estimate: Estimate
    memory: DeviceMemory
    folder: ModelFolder
    problems: tuple[Problem, ...]


def make_plan(options: DeployOptions, devices: str | None) -> Plan:
    """Looks for the model and weighs it; changes nothing and fetches no weights. Raises DeployError."""
    task = checked_task(options.task)
    memory = device_memory(options, devices)
    model = find_model(options)
    name = served_name(options, model)
    by_engine = is_engine_served(model, options, memory.device)
    weights = counted_apart(model, weigh(model), memory.device, is_engine_served=by_engine)
    found = estimate(
        model.config,
        weights,
        options,
        memory.device,
        is_generating=is_generating(model, task),
        dtype=chosen_dtype(model, weights, options, memory.device, is_engine_served=by_engine),
    )
    folder = folder_of(options.repository / name, model, memory.device, options)
    return Plan(name, model, found, memory, folder, tuple(find_problems(model, options, memory.device)))


def check_loading(plan: Plan, options: DeployOptions) -> list[str]:
    """What may go wrong, to warn of; raises ModelNotUsableError where loading is bound to fail, unless the user
    insists."""
    certain = [problem.text for problem in plan.problems if problem.is_certain]
    if certain and not options.is_forced:
        reasons = certain[0] if len(certain) == 1 else "".join(f"\n  - {text}" for text in certain)
        raise ModelNotUsableError(f"'{options.model}' cannot be served: {reasons}\n(--force goes on all the same)")
    return [f"'{options.model}': {problem.text}" for problem in plan.problems]
