"""Checks of `sequence_batching`: control tensors, strategies and states."""

from __future__ import annotations

from typing import TypeAlias

from trireme.config.message import ConfigMessage, enum_name
from trireme.core.errors import InvalidArgumentError
from trireme.proto import model_config_pb2

SequenceControl: TypeAlias = model_config_pb2.ModelSequenceBatching.Control
SequenceState: TypeAlias = model_config_pb2.ModelSequenceBatching.State
InitialState: TypeAlias = model_config_pb2.ModelSequenceBatching.InitialState

_CORRELATION_ID = "CONTROL_SEQUENCE_CORRID"
_CORRELATION_TYPES = ("TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32", "TYPE_STRING")
_VALUE_FIELDS = ("int32_false_true", "fp32_false_true", "bool_false_true")
_ANY_VALUE_FIELD = "'int32_false_true', 'fp32_false_true' or 'bool_false_true'"
_EVERY_VALUE_FIELD = "'int32_false_true', 'fp32_false_true' and 'bool_false_true'"


def validate_sequence_batching(message: ConfigMessage) -> None:
    if not message.HasField("sequence_batching"):
        return
    if message.response_cache.enable:
        raise InvalidArgumentError(
            f"Response Cache does not currently support model {message.name} with sequence batching scheduler. "
            "Please disable the response cache."
        )
    _validate_controls(message)
    batching, name = message.sequence_batching, message.name
    for size in batching.oldest.preferred_batch_size:
        if size <= 0:
            raise InvalidArgumentError(f"sequence batching preferred batch size must be positive for {name}")
        if size > message.max_batch_size:
            raise InvalidArgumentError(f"sequence batching preferred batch size must be <= max batch size for {name}")
    # Written so that NaN fails too.
    if not 0.0 <= batching.direct.minimum_slot_utilization <= 1.0:
        raise InvalidArgumentError(f"sequence batching minimum slot utilization must be in range (0.0, 1.0] for {name}")


def validate_states(message: ConfigMessage) -> None:
    """Checks the initial states against the states they begin."""
    for state in message.sequence_batching.state:
        if len(state.initial_state) > 1:
            raise InvalidArgumentError(
                f"initial_state field for state input '{state.input_name}' must contain exactly one or zero element. "
                f"Found '{len(state.initial_state)}' elements."
            )
        for initial in state.initial_state:
            _validate_initial_state(state, initial)


def _validate_controls(message: ConfigMessage) -> None:
    tensors: set[str] = set()
    kinds: set[str] = set()
    for control_input in message.sequence_batching.control_input:
        if not control_input.name:
            raise InvalidArgumentError(f"sequence batching control tensor must have a name for {message.name}")
        for control in control_input.control:
            if control_input.name in tensors:
                raise InvalidArgumentError(
                    f"sequence batching control tensor '{control_input.name}' is specified for multiple control kinds "
                    f"for {message.name}"
                )
            tensors.add(control_input.name)
            kind = enum_name(control, "kind")
            if kind in kinds:
                raise InvalidArgumentError(f"sequence batching specifies multiple {kind} tensors for {message.name}")
            kinds.add(kind)
            _validate_control(control, kind, message.name)


def _validate_control(control: SequenceControl, kind: str, name: str) -> None:
    given = [field_name for field_name in _VALUE_FIELDS if len(getattr(control, field_name)) > 0]
    if kind == _CORRELATION_ID:
        _validate_correlation_id(control, given, name)
    elif not given:
        raise InvalidArgumentError(f"sequence batching must specify either {_ANY_VALUE_FIELD} for {kind} for {name}")
    elif len(given) > 1:
        raise InvalidArgumentError(
            f"sequence batching specifies more than one from {_EVERY_VALUE_FIELD} for {kind} for {name}"
        )
    elif len(getattr(control, given[0])) != 2:
        raise InvalidArgumentError(
            f"sequence batching control '{given[0]}' must have exactly 2 entries for {kind} for {name}"
        )


def _validate_correlation_id(control: SequenceControl, given: list[str], name: str) -> None:
    if enum_name(control, "data_type") not in _CORRELATION_TYPES:
        allowed = f"{', '.join(_CORRELATION_TYPES[:-1])} and {_CORRELATION_TYPES[-1]}"
        raise InvalidArgumentError(
            f"unexpected data type for control {_CORRELATION_ID} for {name}. Allowed data types are {allowed}"
        )
    if given:
        raise InvalidArgumentError(
            f"sequence batching must not specify either {_ANY_VALUE_FIELD} for {_CORRELATION_ID} for {name}"
        )


def _validate_initial_state(state: SequenceState, initial: InitialState) -> None:
    name = state.input_name
    if initial.data_type != state.data_type:
        raise InvalidArgumentError(
            f"The data type used for 'initial_state' field of state '{name}' does not match the state data type."
        )
    if not initial.name:
        raise InvalidArgumentError(f"Field 'name' must be set when using initial_state for state input '{name}'.")
    if initial.WhichOneof("state_data") is None:
        raise InvalidArgumentError(f"initial_state setting expects state'{name}' to have state_data set")
    if len(initial.dims) != len(state.dims):
        raise InvalidArgumentError(
            "Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state input "
            f"'{name}'. {len(initial.dims)} != {len(state.dims)}"
        )
    if -1 in initial.dims:
        raise InvalidArgumentError(f"'initial_state' field for state input name '{name}' contains variable dimensions.")
    for given, expected in zip(initial.dims, state.dims, strict=True):
        if expected not in (-1, given):
            raise InvalidArgumentError(
                f"'initial_state' dim for input name '{name}' doesn't match 'state' dim description. "
                f"{given} != {expected}"
            )
