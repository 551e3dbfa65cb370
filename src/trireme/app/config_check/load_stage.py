"""What a load does between the configuration and the first request, as far as it needs no code of the model."""

from __future__ import annotations

import asyncio
from pathlib import Path

from trireme.app.config_check.checked_model import CheckedModel
from trireme.app.config_check.model_files import file_problems, import_notes, package_note, parameter_notes
from trireme.backends.builtin.catalog import FACTORIES as BUILTIN
from trireme.backends.python.placement import device_requests, placements_of, stand_in_words
from trireme.backends.services import ModelSource
from trireme.config.compat_words import words_of_model
from trireme.config.load_timeout import NAME as LOAD_TIMEOUT
from trireme.config.load_timeout import load_timeout_s
from trireme.config.message import ConfigMessage, copy_of
from trireme.config.model_config import ModelConfig
from trireme.config.validation.problem import Problem, collecting
from trireme.config.validation.stages import picture_problems
from trireme.devices.inventory import Inventory
from trireme.observe.stats import ModelStats
from trireme.registry.loading.version_loader import read_label_file
from trireme.registry.loading.warmup import read_sample
from trireme.registry.model import Model
from trireme.registry.repository.repositories import ModelId
from trireme.scheduling.scheduler import create_scheduler


def check_load(model: CheckedModel, inventory: Inventory, backend_directory: Path) -> None:
    """Adds what the load of each version would fail with."""
    message = model.message
    if message is None:
        return
    if message.platform != "ensemble":
        for version in model.versions:
            source = ModelSource(model.name, version, model.folder, model.folder / str(version), copy_of(message))
            for problem in file_problems(source, backend_directory):
                model.add(problem)
            model.notes += import_notes(source)
            model.notes += [note for note in parameter_notes(source) if note not in model.notes]
        if (note := package_note(message)) is not None:
            model.notes.append(note)
    for problem in _problems(model, message, inventory):
        model.add(problem)


def _problems(model: CheckedModel, message: ConfigMessage, inventory: Inventory) -> list[Problem]:
    problems: list[Problem] = []
    with collecting(problems, f"parameters['{LOAD_TIMEOUT}']"):
        load_timeout_s(message, 0.0)
    if model.final is None or not model.has_tensors:
        return problems
    if not all([entry.data_type for entry in message.input] + [entry.data_type for entry in message.output]):
        return problems  # the backend may know the type
    problems += picture_problems(model.final)
    config = ModelConfig.from_message(copy_of(model.final))
    for index, output in enumerate(config.outputs.values()):
        if output.label_filename:
            with collecting(problems, f"output[{index}].label_filename"):
                read_label_file(output, model.folder)
    if not config.is_ensemble:
        problems += asyncio.run(_instance_problems(model, config, inventory))
    return problems


async def _instance_problems(model: CheckedModel, config: ModelConfig, inventory: Inventory) -> list[Problem]:
    """Devices, states that sequences begin with, and samples of the warm-up. On a loop, as schedulers have timers."""
    problems: list[Problem] = []
    with collecting(problems, "parameters"):
        words = words_of_model(model.name, config.parameters) or ()
        device_requests(config, placements_of(config), inventory, {*words, *stand_in_words(inventory)})
    if config.backend in BUILTIN:
        with collecting(problems):
            BUILTIN[config.backend].check(config)
    with collecting(problems, "sequence_batching"):
        scheduler = create_scheduler(config, ModelStats(model.name, 1), folder=model.folder)
        stand_in = Model(ModelId("", model.name), 1, config, scheduler, ModelStats(model.name, 1))
        for index, sample in enumerate(config.message.model_warmup):
            with collecting(problems, f"model_warmup[{index}]"):
                read_sample(stand_in, sample, model.folder)
    return problems
