"""Checks of an ensemble against the models it is composed of, and what follows from them: whether it is decoupled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trireme.config.message import ConfigMessage, copy_of, enum_name
from trireme.config.validation.problem import Problem, raise_first
from trireme.core.errors import InvalidArgumentError
from trireme.proto import model_config_pb2

_VARIABLE = -1


@dataclass(frozen=True, slots=True)
class _TensorShape:
    """What one model says of an ensemble tensor."""

    model_name: str
    data_type: str
    dims: tuple[int, ...]
    full_dims: tuple[int, ...]
    """With the batch dimension of a model that batches."""


def resolve_ensemble(message: ConfigMessage, composing: Mapping[str, ConfigMessage]) -> ConfigMessage:
    """A copy of a validated ensemble's message with its transaction policy set to what its steps make it.

    `composing` holds the finalised messages of the steps' models by name. Raises InvalidArgumentError where names,
    types, shapes or batch sizes do not fit.
    """
    missing = sorted({step.model_name for step in message.ensemble_scheduling.step} - set(composing))
    if missing:
        raise InvalidArgumentError(
            f"ensemble {message.name} contains models that are not available or ambiguous: {', '.join(missing)}"
        )
    raise_first(link_problems(message, composing))
    resolved = copy_of(message)
    resolved.model_transaction_policy.decoupled = _is_decoupled(message, composing)
    return resolved


def link_problems(message: ConfigMessage, composing: Mapping[str, ConfigMessage]) -> Iterator[Problem]:
    """Where the steps do not fit the models they name; steps whose model is not in `composing` are left out."""
    known = {tensor.name: _shape_of(tensor, message) for tensor in message.input}
    known |= {tensor.name: _shape_of(tensor, message) for tensor in message.output}
    for index, step in enumerate(message.ensemble_scheduling.step):
        if step.model_name in composing:
            place = f"ensemble_scheduling.step[{index}]"
            yield from _step_problems(message, step, composing[step.model_name], known, place)


def _step_problems(
    message: ConfigMessage,
    step: model_config_pb2.ModelEnsembling.Step,
    model: ConfigMessage,
    known: dict[str, _TensorShape],
    place: str,
) -> Iterator[Problem]:
    if 0 < model.max_batch_size < message.max_batch_size:
        yield Problem(
            f"ensemble {message.name} allows maximum batch size {message.max_batch_size}, but it contains model "
            f"{step.model_name} which only allows maximum batch size to be {model.max_batch_size}",
            "max_batch_size",
        )
    inputs = {tensor.name: tensor for tensor in model.input}
    outputs = {tensor.name: tensor for tensor in model.output}
    for key, name in sorted(step.input_map.items()):
        if key not in inputs:
            yield Problem(
                f"in ensemble {message.name}, ensemble tensor {name} is mapping to non-existing input {key} in model "
                f"{step.model_name}",
                f"{place}.input_map['{key}']",
                f"inputs of {step.model_name}: {', '.join(inputs)}",
            )
    for tensor in model.input:
        if not tensor.optional and tensor.name not in step.input_map:
            yield Problem(
                f"in ensemble {message.name}, input {tensor.name} in model {step.model_name} is not mapped to any "
                "ensemble tensors",
                place,
            )
    for key, name in sorted(step.output_map.items()):
        if key not in outputs:
            yield Problem(
                f"in ensemble {message.name}, ensemble tensor {name} is mapped from non-existing output {key} in "
                f"model {step.model_name}",
                f"{place}.output_map['{key}']",
                f"outputs of {step.model_name}: {', '.join(outputs)}",
            )
    for kind, tensor_map, tensors in (("input", step.input_map, inputs), ("output", step.output_map, outputs)):
        for key, name in sorted(tensor_map.items()):
            if key in tensors:
                found = _shape_of(tensors[key], model)
                yield from _differences(message.name, name, known, found, f"{place}.{kind}_map['{key}']")


def _differences(
    ensemble_name: str, name: str, known: dict[str, _TensorShape], found: _TensorShape, place: str
) -> Iterator[Problem]:
    first = known.setdefault(name, found)
    if first.data_type != found.data_type:
        problem, said, also_said = "data type", first.data_type, found.data_type
    # A tensor between a model that batches and one that does not may agree only with the batch dimension counted.
    elif not (_agree(first.dims, found.dims) or _agree(first.full_dims, found.full_dims)):
        problem, said, also_said = "shape", _dims_text(first.full_dims), _dims_text(found.full_dims)
    else:
        return
    yield Problem(
        f"in ensemble {ensemble_name}, ensemble tensor {name}: inconsistent {problem}: {said} is inferred from model "
        f"{first.model_name} while {also_said} is inferred from model {found.model_name}",
        place,
    )


def _shape_of(tensor: model_config_pb2.ModelInput | model_config_pb2.ModelOutput, model: ConfigMessage) -> _TensorShape:
    dims = tuple(tensor.dims)
    full_dims = (_VARIABLE, *dims) if model.max_batch_size > 0 else dims
    return _TensorShape(model.name, enum_name(tensor, "data_type"), dims, full_dims)


def _agree(left: Sequence[int], right: Sequence[int]) -> bool:
    return len(left) == len(right) and all(
        _VARIABLE in (one, other) or one == other for one, other in zip(left, right, strict=True)
    )


def _dims_text(dims: Sequence[int]) -> str:
    return f"[{','.join(str(dim) for dim in dims)}]"


def _is_decoupled(message: ConfigMessage, composing: Mapping[str, ConfigMessage]) -> bool:
    """Follows every tensor back to the last decoupled step before it; a step may not mix two such origins.

    Responses of two decoupled steps, or of one and of none, come in different numbers, so nothing pairs them up.
    """
    origins: dict[str, int | None] = {tensor.name: None for tensor in message.input}
    waiting = list(enumerate(message.ensemble_scheduling.step))
    while waiting:
        runnable = [(index, step) for index, step in waiting if origins.keys() >= set(step.input_map.values())]
        if not runnable:
            break
        for index, step in runnable:
            origin = _common_origin(message.name, [origins[name] for name in step.input_map.values()])
            if composing[step.model_name].model_transaction_policy.decoupled:
                origin = index
            origins.update(dict.fromkeys(step.output_map.values(), origin))
        done = {index for index, _ in runnable}
        waiting = [(index, step) for index, step in waiting if index not in done]
    return _common_origin(message.name, [origins.get(tensor.name) for tensor in message.output]) is not None


def _common_origin(ensemble_name: str, origins: Sequence[int | None]) -> int | None:
    if len(set(origins)) > 1:
        raise InvalidArgumentError(
            f"in ensemble {ensemble_name}, step of model '{ensemble_name}' receives inputs originated from different "
            "decoupled models"
        )
    return origins[0] if origins else None
