"""Writes the defaults that a configuration leaves unsaid into the message, so that nobody after has to know them."""

from __future__ import annotations

from trireme.config.autofill import ENSEMBLE_PLATFORM
from trireme.config.device_parameter import apply_device_parameter
from trireme.config.message import ConfigMessage
from trireme.proto import model_config_pb2

DEFAULT_SEQUENCE_IDLE_US = 1_000_000

_WITHOUT_CUDA = {"catboost", "fil", "lightgbm", "mlflow", "neuron", "openvino", "sklearn", "xgboost"}
"""Backends that have no use for GPUs of NVIDIA, and get them only where a group says so."""
_PAIRED_ON_CPU = {"onnxruntime", "tensorflow"}
"""Backends that get two instances per group on a CPU unless a count is given."""


def normalise(message: ConfigMessage) -> None:
    """Version policy, batch sizes, sequence idle time and pinned memory, in place; saying it twice changes nothing."""
    if message.version_policy.WhichOneof("policy_choice") is None:
        message.version_policy.latest.num_versions = 1
    _normalise_scheduling(message)
    if message.platform != ENSEMBLE_PLATFORM:
        for field_name in ("input_pinned_memory", "output_pinned_memory"):
            if not message.optimization.HasField(field_name):
                getattr(message.optimization, field_name).enable = True


def normalise_instance_groups(message: ConfigMessage, gpu_count: int) -> None:
    """Names, kinds, counts and devices of the instance groups, in place; an ensemble has none. The parameter `device`
    comes before what the groups say."""
    if message.platform == ENSEMBLE_PLATFORM:
        return
    if not message.instance_group:
        message.instance_group.add(name=message.name)
    apply_device_parameter(message)
    for index, group in enumerate(message.instance_group):
        if not group.name:
            group.name = f"{message.name}_{index}"
        _normalise_group(group, message.backend, gpu_count)


def _normalise_scheduling(message: ConfigMessage) -> None:
    scheduling = message.WhichOneof("scheduling_choice")
    if scheduling == "dynamic_batching":
        _default_preferred_size(message.dynamic_batching, message.max_batch_size)
    elif scheduling == "sequence_batching":
        if message.sequence_batching.max_sequence_idle_microseconds == 0:
            message.sequence_batching.max_sequence_idle_microseconds = DEFAULT_SEQUENCE_IDLE_US
        if message.sequence_batching.HasField("oldest"):
            _default_preferred_size(message.sequence_batching.oldest, message.max_batch_size)


def _default_preferred_size(
    batching: model_config_pb2.ModelDynamicBatching | model_config_pb2.ModelSequenceBatching.StrategyOldest,
    max_batch_size: int,
) -> None:
    if not batching.preferred_batch_size and max_batch_size > 0:
        batching.preferred_batch_size.append(max_batch_size)


def _normalise_group(group: model_config_pb2.ModelInstanceGroup, backend: str, gpu_count: int) -> None:
    kinds = model_config_pb2.ModelInstanceGroup
    if group.kind == kinds.KIND_AUTO:
        has_gpus = gpu_count > 0 and all(0 <= gpu < gpu_count for gpu in group.gpus) and backend not in _WITHOUT_CUDA
        group.kind = kinds.KIND_GPU if has_gpus else kinds.KIND_CPU
    if group.count < 1:
        group.count = 2 if group.kind == kinds.KIND_CPU and backend in _PAIRED_ON_CPU else 1
    if group.kind == kinds.KIND_GPU and not group.gpus:
        group.gpus.extend(range(gpu_count))
