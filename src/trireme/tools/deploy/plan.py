"""Everything that is known about a deployment before it is done."""

from __future__ import annotations

from dataclasses import dataclass

from trireme.tools.deploy.device_memory import DeviceMemory, device_memory
from trireme.tools.deploy.folder_texts import folder_of
from trireme.tools.deploy.memory import Estimate, estimate
from trireme.tools.deploy.model_files import ModelFiles
from trireme.tools.deploy.model_folder import ModelFolder
from trireme.tools.deploy.options import DeployOptions
from trireme.tools.deploy.resolve import find_model, served_name
from trireme.tools.deploy.task import checked_task, is_generating
from trireme.tools.deploy.weights import weigh


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be served, from where, and what it takes."""

    name: str
    model: ModelFiles
    estimate: Estimate
    memory: DeviceMemory
    folder: ModelFolder


def make_plan(options: DeployOptions, devices: str | None) -> Plan:
    """Looks for the model and weighs it; changes nothing and fetches no weights. Raises DeployError."""
    task = checked_task(options.task)
    memory = device_memory(options, devices)
    model = find_model(options)
    name = served_name(options, model)
    found = estimate(model.config, weigh(model), options, memory.device, is_generating=is_generating(model, task))
    return Plan(name, model, found, memory, folder_of(options.repository / name, model, memory.device, options))
