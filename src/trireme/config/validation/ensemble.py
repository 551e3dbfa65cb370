"""Checks of an ensemble on its own: its steps, and that its tensors connect inputs to outputs."""

from __future__ import annotations

from collections.abc import Iterator

from trireme.config.autofill import ENSEMBLE_PLATFORM
from trireme.config.message import ConfigMessage
from trireme.config.validation.problem import Problem
from trireme.proto import model_config_pb2

_STEPS = "ensemble_scheduling.step"


def ensemble_problems(message: ConfigMessage) -> Iterator[Problem]:
    has_steps = message.HasField("ensemble_scheduling")
    if message.platform != ENSEMBLE_PLATFORM:
        if has_steps:
            yield Problem(
                f"ensemble scheduling cannot be set for model '{message.name}' whose platform is not "
                f"{ENSEMBLE_PLATFORM}",
                "ensemble_scheduling",
                'write platform: "ensemble", without a backend',
            )
        return
    if not has_steps:
        yield Problem(
            f"ensemble scheduling must be set for ensemble {message.name} whose platform is {ENSEMBLE_PLATFORM}",
            "platform",
        )
        return
    if message.instance_group:
        yield Problem(f"instance group should not be specified for ensemble '{message.name}'", "instance_group")
    if message.HasField("optimization"):
        yield Problem(f"optimization should not be specified for ensemble '{message.name}'", "optimization")
    if message.model_warmup:
        yield Problem(f"model_warmup can not be specified for ensemble '{message.name}'", "model_warmup")
    has_problem = False
    for problem in _step_problems(message):
        has_problem = True
        yield problem
    if not has_problem:
        yield from _connection_problems(message)


def _step_problems(message: ConfigMessage) -> Iterator[Problem]:
    if not message.ensemble_scheduling.step:
        yield Problem(f"must specify 'step' for ensemble '{message.name}'", "ensemble_scheduling")
    written: set[str] = set()
    for index, step in enumerate(message.ensemble_scheduling.step):
        place = f"{_STEPS}[{index}]"
        for field_name in ("model_name", "input_map", "output_map"):
            if not getattr(step, field_name):
                yield Problem(f"must specify '{field_name}' in step {index} of ensemble '{message.name}'", place)
        for key in sorted(step.output_map):
            tensor = step.output_map[key]
            if tensor in written:
                yield Problem(
                    f"ensemble tensor '{tensor}' can appear in an output map only once for ensemble '{message.name}' "
                    f"step {index}",
                    f"{place}.output_map['{key}']",
                )
            written.add(tensor)


def _connection_problems(message: ConfigMessage) -> Iterator[Problem]:
    steps = message.ensemble_scheduling.step
    read = {tensor for step in steps for tensor in step.input_map.values()}
    written = {tensor for step in steps for tensor in step.output_map.values()}
    outputs = [tensor.name for tensor in message.output]
    is_used = True
    for kind, names in (("input", [tensor.name for tensor in message.input]), ("output", outputs)):
        for index, name in enumerate(names):
            if name not in read | written:
                is_used = False
                yield Problem(f"ensemble {kind} '{name}' for ensemble {message.name}' is not used", f"{kind}[{index}]")
    if not is_used:
        return
    yield from _reach_problems(message, outputs)
    for name in sorted(written - read - set(outputs)):
        yield _unused(name, message)


def _reach_problems(message: ConfigMessage, outputs: list[str]) -> Iterator[Problem]:
    """Every output must follow from the inputs, step by step."""
    ready = {tensor.name for tensor in message.input}
    waiting = list(message.ensemble_scheduling.step)
    while True:
        runnable = [step for step in waiting if ready.issuperset(step.input_map.values())]
        if not runnable:
            break
        waiting = [step for step in waiting if step not in runnable]
        for step in runnable:
            ready.update(step.output_map.values())
    is_written = True
    for index, name in enumerate(outputs):
        if name not in ready:
            is_written = False
            yield Problem(
                f"output '{name}' for ensemble '{message.name}' is not written{_missing_link(name, ready, waiting)}",
                f"output[{index}]",
            )
    if is_written:  # what is left is a circle beside them
        for tensor in sorted(tensor for step in waiting for tensor in step.output_map.values()):
            yield _unused(tensor, message)


def _unused(tensor: str, message: ConfigMessage) -> Problem:
    place = next(
        (
            f"{_STEPS}[{index}].output_map['{key}']"
            for index, step in enumerate(message.ensemble_scheduling.step)
            for key in step.output_map
            if step.output_map[key] == tensor
        ),
        _STEPS,
    )
    return Problem(f"ensemble tensor '{tensor}' is unused in ensemble '{message.name}'", place)


def _missing_link(name: str, ready: set[str], waiting: list[model_config_pb2.ModelEnsembling.Step]) -> str:
    for step in waiting:
        if name in step.output_map.values():
            missing = sorted(set(step.input_map.values()) - ready)
            return f": at least one of its depending tensors, '{missing[0]}', is not connected"
    return ""
