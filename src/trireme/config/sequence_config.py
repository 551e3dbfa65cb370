"""`sequence_batching` as frozen values, read off the normalised message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trireme.core import datatype

if TYPE_CHECKING:  # read by commands that have no use for protobuf
    from trireme.proto import model_config_pb2

START = "CONTROL_SEQUENCE_START"
READY = "CONTROL_SEQUENCE_READY"
END = "CONTROL_SEQUENCE_END"
CORRELATION_ID = "CONTROL_SEQUENCE_CORRID"

_VALUE_TYPES = {"int32_false_true": "INT32", "fp32_false_true": "FP32", "bool_false_true": "BOOL"}


@dataclass(frozen=True, slots=True)
class ControlConfig:
    """One control tensor: an input that the server adds, to tell the model about the sequence."""

    name: str
    kind: str
    """`CONTROL_SEQUENCE_START`, `..._READY`, `..._END` or `..._CORRID`."""
    datatype: str
    """Wire name."""
    false_value: float = 0
    true_value: float = 0
    """What stands for no and for yes; CORRID has neither."""


@dataclass(frozen=True, slots=True)
class StateConfig:
    """One entry of `state`: an output of one request that is an input of the sequence's next."""

    input_name: str
    output_name: str
    datatype: str
    dims: tuple[int, ...]
    """Without the batch dimension; -1 is variable."""
    initial_dims: tuple[int, ...]
    """The shape of a sequence's first state; what is variable and not said otherwise is 1."""
    data_file: str = ""
    """The file in the model's `initial_state` folder with the first state; empty for zeros."""


@dataclass(frozen=True, slots=True)
class OldestStrategyConfig:
    """`StrategyOldest`: requests of different sequences are batched as they come."""

    max_candidate_sequences: int
    """How many sequences an instance works on at a time; 0 is as many as a batch has room for."""
    preferred_batch_sizes: tuple[int, ...] = ()
    max_queue_delay_us: int = 0
    preserve_ordering: bool = False


@dataclass(frozen=True, slots=True)
class SequenceBatchingConfig:
    """`ModelSequenceBatching`."""

    max_idle_us: int = 1_000_000
    """A sequence that is silent for longer is ended."""
    controls: tuple[ControlConfig, ...] = ()
    states: tuple[StateConfig, ...] = ()
    is_iterative: bool = False
    """Each request is a sequence of its own, which the model runs again until it is done."""
    oldest: OldestStrategyConfig | None = None
    """None is the direct strategy, for which the two fields below are."""
    max_queue_delay_us: int = 0
    minimum_slot_utilization: float = 0.0

    @property
    def has_text_ids(self) -> bool:
        """Whether correlation ids are strings for the model."""
        return any(entry.kind == CORRELATION_ID and entry.datatype == datatype.BYTES for entry in self.controls)

    @classmethod
    def from_message(cls, message: model_config_pb2.ModelSequenceBatching) -> SequenceBatchingConfig:
        """Reads a normalised and checked `sequence_batching`."""
        return cls(
            max_idle_us=message.max_sequence_idle_microseconds,
            controls=tuple(
                _control(entry.name, control) for entry in message.control_input for control in entry.control
            ),
            states=tuple(_state(entry) for entry in message.state),
            is_iterative=message.iterative_sequence,
            oldest=_oldest(message.oldest) if message.HasField("oldest") else None,
            max_queue_delay_us=message.direct.max_queue_delay_microseconds,
            minimum_slot_utilization=message.direct.minimum_slot_utilization,
        )


def _enum_name(entry: model_config_pb2.Message, field_name: str) -> str:
    field = entry.DESCRIPTOR.fields_by_name[field_name]
    name: str = field.enum_type.values_by_number[getattr(entry, field_name)].name
    return name


def _control(name: str, entry: model_config_pb2.ModelSequenceBatching.Control) -> ControlConfig:
    kind = _enum_name(entry, "kind")
    if kind == CORRELATION_ID:
        return ControlConfig(name, kind, datatype.from_config(_enum_name(entry, "data_type")))
    for field_name, wire_name in _VALUE_TYPES.items():
        values = getattr(entry, field_name)
        if len(values) == 2:
            return ControlConfig(name, kind, wire_name, values[0], values[1])
    raise ValueError(f"control '{name}' has no values")  # validation has refused such a configuration


def _state(entry: model_config_pb2.ModelSequenceBatching.State) -> StateConfig:
    initial = entry.initial_state[0] if entry.initial_state else None
    dims = tuple(entry.dims)
    return StateConfig(
        input_name=entry.input_name,
        output_name=entry.output_name,
        datatype=datatype.from_config(_enum_name(entry, "data_type")),
        dims=dims,
        initial_dims=tuple(initial.dims) if initial is not None else tuple(1 if dim < 0 else dim for dim in dims),
        data_file=initial.data_file if initial is not None else "",
    )


def _oldest(entry: model_config_pb2.ModelSequenceBatching.StrategyOldest) -> OldestStrategyConfig:
    return OldestStrategyConfig(
        max_candidate_sequences=entry.max_candidate_sequences,
        preferred_batch_sizes=tuple(entry.preferred_batch_size),
        max_queue_delay_us=entry.max_queue_delay_microseconds,
        preserve_ordering=entry.preserve_ordering,
    )
