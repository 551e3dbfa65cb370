"""Checks of an ensemble on its own: its steps, and that its tensors connect inputs to outputs."""

from __future__ import annotations

from trireme.config.autofill import ENSEMBLE_PLATFORM
from trireme.config.message import ConfigMessage
from trireme.core.errors import InvalidArgumentError
from trireme.proto import model_config_pb2


def validate_ensemble(message: ConfigMessage) -> None:
    has_steps = message.HasField("ensemble_scheduling")
    if message.platform != ENSEMBLE_PLATFORM:
        if has_steps:
            raise InvalidArgumentError(
                f"ensemble scheduling cannot be set for model '{message.name}' whose platform is not "
                f"{ENSEMBLE_PLATFORM}"
            )
        return
    if not has_steps:
        raise InvalidArgumentError(
            f"ensemble scheduling must be set for ensemble {message.name} whose platform is {ENSEMBLE_PLATFORM}"
        )
    if message.instance_group:
        raise InvalidArgumentError(f"instance group should not be specified for ensemble '{message.name}'")
    if message.HasField("optimization"):
        raise InvalidArgumentError(f"optimization should not be specified for ensemble '{message.name}'")
    if message.model_warmup:
        raise InvalidArgumentError(f"model_warmup can not be specified for ensemble '{message.name}'")
    _validate_steps(message)
    _validate_connections(message)


def _validate_steps(message: ConfigMessage) -> None:
    if not message.ensemble_scheduling.step:
        raise InvalidArgumentError(f"must specify 'step' for ensemble '{message.name}'")
    written: set[str] = set()
    for index, step in enumerate(message.ensemble_scheduling.step):
        for field_name in ("model_name", "input_map", "output_map"):
            if not getattr(step, field_name):
                raise InvalidArgumentError(f"must specify '{field_name}' in step {index} of ensemble '{message.name}'")
        for key in sorted(step.output_map):
            tensor = step.output_map[key]
            if tensor in written:
                raise InvalidArgumentError(
                    f"ensemble tensor '{tensor}' can appear in an output map only once for ensemble '{message.name}' "
                    f"step {index}"
                )
            written.add(tensor)


def _validate_connections(message: ConfigMessage) -> None:
    steps = message.ensemble_scheduling.step
    read = {tensor for step in steps for tensor in step.input_map.values()}
    written = {tensor for step in steps for tensor in step.output_map.values()}
    outputs = [tensor.name for tensor in message.output]
    for tensor in message.input:
        if tensor.name not in read | written:
            raise InvalidArgumentError(f"ensemble input '{tensor.name}' for ensemble {message.name}' is not used")
    for name in outputs:
        if name not in read | written:
            raise InvalidArgumentError(f"ensemble output '{name}' for ensemble {message.name}' is not used")
    _validate_reachable(message, outputs)
    for name in sorted(written - read - set(outputs)):
        raise InvalidArgumentError(f"ensemble tensor '{name}' is unused in ensemble '{message.name}'")


def _validate_reachable(message: ConfigMessage, outputs: list[str]) -> None:
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
    for name in outputs:
        if name not in ready:
            raise InvalidArgumentError(
                f"output '{name}' for ensemble '{message.name}' is not written{_missing_link(name, ready, waiting)}"
            )
    for tensor in sorted(tensor for step in waiting for tensor in step.output_map.values()):  # a circle beside them
        raise InvalidArgumentError(f"ensemble tensor '{tensor}' is unused in ensemble '{message.name}'")


def _missing_link(name: str, ready: set[str], waiting: list[model_config_pb2.ModelEnsembling.Step]) -> str:
    for step in waiting:
        if name in step.output_map.values():
            missing = sorted(set(step.input_map.values()) - ready)
            return f": at least one of its depending tensors, '{missing[0]}', is not connected"
    return ""
