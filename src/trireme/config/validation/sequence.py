"""Checks of `sequence_batching`: control tensors, strategies and states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from trireme.config.message import ConfigMessage, enum_name
from trireme.config.validation.problem import Problem
from trireme.proto import model_config_pb2

SequenceControl: TypeAlias = model_config_pb2.ModelSequenceBatching.Control
SequenceState: TypeAlias = model_config_pb2.ModelSequenceBatching.State
InitialState: TypeAlias = model_config_pb2.ModelSequenceBatching.InitialState

_CORRELATION_ID = "CONTROL_SEQUENCE_CORRID"
_CORRELATION_TYPES = ("TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32", "TYPE_STRING")
_VALUE_FIELDS = ("int32_false_true", "fp32_false_true", "bool_false_true")
_ANY_VALUE_FIELD = "'int32_false_true', 'fp32_false_true' or 'bool_false_true'"
_EVERY_VALUE_FIELD = "'int32_false_true', 'fp32_false_true' and 'bool_false_true'"


def sequence_batching_problems(message: ConfigMessage) -> Iterator[Problem]:
    if not message.HasField("sequence_batching"):
        return
    if message.response_cache.enable:
        yield Problem(
            f"Response Cache does not currently support model {message.name} with sequence batching scheduler. "
            "Please disable the response cache.",
            "response_cache",
        )
    yield from _control_problems(message)
    batching, name = message.sequence_batching, message.name
    sizes, place = batching.oldest.preferred_batch_size, "sequence_batching.oldest.preferred_batch_size"
    if any(size <= 0 for size in sizes):
        yield Problem(f"sequence batching preferred batch size must be positive for {name}", place)
    if any(size > message.max_batch_size for size in sizes):
        yield Problem(f"sequence batching preferred batch size must be <= max batch size for {name}", place)
    # Written so that NaN fails too.
    if not 0.0 <= batching.direct.minimum_slot_utilization <= 1.0:
        yield Problem(
            f"sequence batching minimum slot utilization must be in range (0.0, 1.0] for {name}",
            "sequence_batching.direct.minimum_slot_utilization",
        )


def state_problems(message: ConfigMessage) -> Iterator[Problem]:
    """Checks the initial states against the states they begin."""
    for index, state in enumerate(message.sequence_batching.state):
        place = f"sequence_batching.state[{index}]"
        if len(state.initial_state) > 1:
            yield Problem(
                f"initial_state field for state input '{state.input_name}' must contain exactly one or zero element. "
                f"Found '{len(state.initial_state)}' elements.",
                place,
            )
            continue
        for initial in state.initial_state:
            yield from _initial_state_problems(state, initial, f"{place}.initial_state")


def _control_problems(message: ConfigMessage) -> Iterator[Problem]:
    tensors: set[str] = set()
    kinds: set[str] = set()
    for index, control_input in enumerate(message.sequence_batching.control_input):
        place = f"sequence_batching.control_input[{index}]"
        if not control_input.name:
            yield Problem(f"sequence batching control tensor must have a name for {message.name}", place)
        for number, control in enumerate(control_input.control):
            if control_input.name in tensors:
                yield Problem(
                    f"sequence batching control tensor '{control_input.name}' is specified for multiple control kinds "
                    f"for {message.name}",
                    place,
                )
            tensors.add(control_input.name)
            kind = enum_name(control, "kind")
            if kind in kinds:
                yield Problem(f"sequence batching specifies multiple {kind} tensors for {message.name}", place)
            kinds.add(kind)
            yield from _value_problems(control, kind, message.name, f"{place}.control[{number}]")


def _value_problems(control: SequenceControl, kind: str, name: str, place: str) -> Iterator[Problem]:
    given = [field_name for field_name in _VALUE_FIELDS if len(getattr(control, field_name)) > 0]
    if kind == _CORRELATION_ID:
        yield from _correlation_id_problems(control, given, name, place)
    elif not given:
        yield Problem(f"sequence batching must specify either {_ANY_VALUE_FIELD} for {kind} for {name}", place)
    elif len(given) > 1:
        yield Problem(
            f"sequence batching specifies more than one from {_EVERY_VALUE_FIELD} for {kind} for {name}", place
        )
    elif len(getattr(control, given[0])) != 2:
        yield Problem(
            f"sequence batching control '{given[0]}' must have exactly 2 entries for {kind} for {name}",
            f"{place}.{given[0]}",
        )


def _correlation_id_problems(control: SequenceControl, given: list[str], name: str, place: str) -> Iterator[Problem]:
    if enum_name(control, "data_type") not in _CORRELATION_TYPES:
        allowed = f"{', '.join(_CORRELATION_TYPES[:-1])} and {_CORRELATION_TYPES[-1]}"
        yield Problem(
            f"unexpected data type for control {_CORRELATION_ID} for {name}. Allowed data types are {allowed}", place
        )
    if given:
        yield Problem(
            f"sequence batching must not specify either {_ANY_VALUE_FIELD} for {_CORRELATION_ID} for {name}", place
        )


def _initial_state_problems(state: SequenceState, initial: InitialState, place: str) -> Iterator[Problem]:
    name = state.input_name
    if initial.data_type != state.data_type:
        yield Problem(
            f"The data type used for 'initial_state' field of state '{name}' does not match the state data type.", place
        )
    if not initial.name:
        yield Problem(f"Field 'name' must be set when using initial_state for state input '{name}'.", place)
    if initial.WhichOneof("state_data") is None:
        yield Problem(f"initial_state setting expects state'{name}' to have state_data set", place)
    if len(initial.dims) != len(state.dims):
        yield Problem(
            "Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state input "
            f"'{name}'. {len(initial.dims)} != {len(state.dims)}",
            place,
        )
        return
    if -1 in initial.dims:
        yield Problem(f"'initial_state' field for state input name '{name}' contains variable dimensions.", place)
    for given, expected in zip(initial.dims, state.dims, strict=True):
        if expected not in (-1, given):
            yield Problem(
                f"'initial_state' dim for input name '{name}' doesn't match 'state' dim description. "
                f"{given} != {expected}",
                place,
            )
