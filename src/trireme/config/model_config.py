"""A model's configuration as frozen values, read off the normalised `ModelConfig` message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trireme.config.sequence_config import SequenceBatchingConfig
from trireme.core import datatype

if TYPE_CHECKING:  # read by commands that have no use for protobuf
    from trireme.proto import model_config_pb2


@dataclass(frozen=True, slots=True)
class TensorConfig:
    """One entry of `input` or `output`."""

    name: str
    datatype: str
    """Wire name, `FP32` or `BYTES`."""
    dims: tuple[int, ...]
    """Without the batch dimension; -1 is variable."""
    reshape: tuple[int, ...] | None = None
    is_optional: bool = False
    allow_ragged_batch: bool = False
    label_filename: str = ""
    """Outputs only: the file whose lines name the classes, relative to the model folder."""


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """`ModelQueuePolicy`: what happens to requests that wait."""

    delays_on_timeout: bool = False
    """`timeout_action: DELAY`; otherwise a request that waited too long is rejected."""
    default_timeout_us: int = 0
    """0 is no timeout."""
    allow_timeout_override: bool = False
    max_queue_size: int = 0
    """0 is no limit."""


@dataclass(frozen=True, slots=True)
class DynamicBatchingConfig:
    """`ModelDynamicBatching`."""

    preferred_batch_sizes: tuple[int, ...]
    max_queue_delay_us: int = 0
    preserve_ordering: bool = False
    priority_levels: int = 0
    default_priority_level: int = 0
    default_queue_policy: QueuePolicy = field(default_factory=QueuePolicy)
    priority_queue_policies: Mapping[int, QueuePolicy] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InstanceGroupConfig:
    """One entry of `instance_group`."""

    name: str
    kind: str
    """`KIND_CPU`, `KIND_GPU`, `KIND_MODEL`; KIND_AUTO is resolved by normalisation."""
    count: int
    gpus: tuple[int, ...] = ()
    is_passive: bool = False


@dataclass(frozen=True, slots=True)
class EnsembleStepConfig:
    """One step of `ensemble_scheduling`; the maps go from the composing model's tensor to the ensemble's."""

    model_name: str
    model_version: int
    """-1 is the newest."""
    input_map: Mapping[str, str]
    output_map: Mapping[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class ModelConfig:
    """The fields the server acts on; `message` holds the whole, for the wire and for the model."""

    name: str
    platform: str
    backend: str
    runtime: str
    max_batch_size: int
    inputs: Mapping[str, TensorConfig]
    """By name, in the order of the file."""
    outputs: Mapping[str, TensorConfig]
    dynamic_batching: DynamicBatchingConfig | None
    ensemble_steps: tuple[EnsembleStepConfig, ...]
    """Empty for anything but an ensemble."""
    max_inflight_requests: int
    instance_groups: tuple[InstanceGroupConfig, ...]
    default_model_filename: str
    parameters: Mapping[str, str]
    metric_tags: Mapping[str, str]
    is_decoupled: bool
    has_response_cache: bool
    message: model_config_pb2.ModelConfig
    """The normalised `inference.ModelConfig` message; not to be changed."""
    sequence_batching: SequenceBatchingConfig | None = None

    @property
    def is_ensemble(self) -> bool:
        return self.platform == "ensemble"

    @classmethod
    def from_message(cls, message: model_config_pb2.ModelConfig) -> ModelConfig:
        """Reads a normalised message; the message is kept, so hand over one that nobody else changes."""
        has_dynamic = message.HasField("dynamic_batching")
        has_sequence = message.HasField("sequence_batching")
        return cls(
            name=message.name,
            platform=message.platform,
            backend=message.backend,
            runtime=message.runtime,
            max_batch_size=message.max_batch_size,
            inputs={entry.name: _input(entry) for entry in message.input},
            outputs={entry.name: _output(entry) for entry in message.output},
            dynamic_batching=_dynamic_batching(message.dynamic_batching) if has_dynamic else None,
            ensemble_steps=tuple(_step(entry) for entry in message.ensemble_scheduling.step),
            max_inflight_requests=message.ensemble_scheduling.max_inflight_requests,
            instance_groups=tuple(_instance_group(entry) for entry in message.instance_group),
            default_model_filename=message.default_model_filename,
            parameters={key: value.string_value for key, value in message.parameters.items()},
            metric_tags=dict(message.metric_tags),
            is_decoupled=message.model_transaction_policy.decoupled,
            has_response_cache=message.response_cache.enable,
            message=message,
            sequence_batching=SequenceBatchingConfig.from_message(message.sequence_batching) if has_sequence else None,
        )


def _datatype(entry: model_config_pb2.ModelInput | model_config_pb2.ModelOutput) -> str:
    name = entry.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number[entry.data_type].name
    return datatype.from_config(name)


def _reshape(entry: model_config_pb2.ModelInput | model_config_pb2.ModelOutput) -> tuple[int, ...] | None:
    return tuple(entry.reshape.shape) if entry.HasField("reshape") else None


def _input(entry: model_config_pb2.ModelInput) -> TensorConfig:
    return TensorConfig(
        name=entry.name,
        datatype=_datatype(entry),
        dims=tuple(entry.dims),
        reshape=_reshape(entry),
        is_optional=entry.optional,
        allow_ragged_batch=entry.allow_ragged_batch,
    )


def _output(entry: model_config_pb2.ModelOutput) -> TensorConfig:
    return TensorConfig(
        name=entry.name,
        datatype=_datatype(entry),
        dims=tuple(entry.dims),
        reshape=_reshape(entry),
        label_filename=entry.label_filename,
    )


def _queue_policy(entry: model_config_pb2.ModelQueuePolicy) -> QueuePolicy:
    return QueuePolicy(
        delays_on_timeout=entry.timeout_action == 1,
        default_timeout_us=entry.default_timeout_microseconds,
        allow_timeout_override=entry.allow_timeout_override,
        max_queue_size=entry.max_queue_size,
    )


def _dynamic_batching(entry: model_config_pb2.ModelDynamicBatching) -> DynamicBatchingConfig:
    return DynamicBatchingConfig(
        preferred_batch_sizes=tuple(entry.preferred_batch_size),
        max_queue_delay_us=entry.max_queue_delay_microseconds,
        preserve_ordering=entry.preserve_ordering,
        priority_levels=entry.priority_levels,
        default_priority_level=entry.default_priority_level,
        default_queue_policy=_queue_policy(entry.default_queue_policy),
        priority_queue_policies={level: _queue_policy(policy) for level, policy in entry.priority_queue_policy.items()},
    )


def _instance_group(entry: model_config_pb2.ModelInstanceGroup) -> InstanceGroupConfig:
    kind = entry.DESCRIPTOR.fields_by_name["kind"].enum_type.values_by_number[entry.kind].name
    return InstanceGroupConfig(
        name=entry.name, kind=kind, count=entry.count, gpus=tuple(entry.gpus), is_passive=entry.passive
    )


def _step(entry: model_config_pb2.ModelEnsembling.Step) -> EnsembleStepConfig:
    return EnsembleStepConfig(
        model_name=entry.model_name,
        model_version=entry.model_version,
        input_map=dict(entry.input_map),
        output_map=dict(entry.output_map),
    )
