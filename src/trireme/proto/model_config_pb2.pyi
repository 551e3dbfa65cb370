"""The types of the messages of `config.pbtxt`; written by docs/generate_stubs.py from their descriptor."""

from collections.abc import Iterable, Iterator, MutableMapping, MutableSequence
from typing import Any, Self, TypeVar, overload

T = TypeVar("T")
K = TypeVar("K")
M = TypeVar("M", bound=Message)

DESCRIPTOR: Any

class Message:
    DESCRIPTOR: Any
    def __init__(self, **fields: Any) -> None: ...
    def ByteSize(self) -> int: ...
    def Clear(self) -> None: ...
    def ClearField(self, field_name: str) -> None: ...
    def CopyFrom(self, other: Self) -> None: ...
    def HasField(self, field_name: str) -> bool: ...
    def ListFields(self) -> list[tuple[Any, Any]]: ...
    def MergeFrom(self, other: Self) -> None: ...
    def MergeFromString(self, serialized: bytes) -> int: ...
    def ParseFromString(self, serialized: bytes) -> int: ...
    def SerializeToString(self, *, deterministic: bool = False) -> bytes: ...
    def WhichOneof(self, oneof_group: str) -> str | None: ...

class Repeated(MutableSequence[T]):
    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __setitem__(self, index: int | slice, value: Any) -> None: ...
    def __delitem__(self, index: int | slice) -> None: ...
    def __len__(self) -> int: ...
    def insert(self, index: int, value: T) -> None: ...
    def extend(self, values: Iterable[T]) -> None: ...

class RepeatedMessage(Repeated[M]):
    def add(self, **fields: Any) -> M: ...

class Map(MutableMapping[K, T]):
    def __getitem__(self, key: K) -> T: ...
    def __setitem__(self, key: K, value: T) -> None: ...
    def __delitem__(self, key: K) -> None: ...
    def __iter__(self) -> Iterator[K]: ...
    def __len__(self) -> int: ...

class EnumType:
    def Name(self, number: int) -> str: ...
    def Value(self, name: str) -> int: ...
    def keys(self) -> list[str]: ...
    def values(self) -> list[int]: ...

DataType: EnumType
TYPE_INVALID: int
TYPE_BOOL: int
TYPE_UINT8: int
TYPE_UINT16: int
TYPE_UINT32: int
TYPE_UINT64: int
TYPE_INT8: int
TYPE_INT16: int
TYPE_INT32: int
TYPE_INT64: int
TYPE_FP16: int
TYPE_FP32: int
TYPE_FP64: int
TYPE_STRING: int
TYPE_BF16: int

class BatchInput(Message):
    Kind: EnumType
    BATCH_ELEMENT_COUNT: int
    BATCH_ACCUMULATED_ELEMENT_COUNT: int
    BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO: int
    BATCH_MAX_ELEMENT_COUNT_AS_SHAPE: int
    BATCH_ITEM_SHAPE: int
    BATCH_ITEM_SHAPE_FLATTEN: int
    kind: int
    target_name: Repeated[str]
    data_type: int
    source_input: Repeated[str]

class BatchOutput(Message):
    Kind: EnumType
    BATCH_SCATTER_WITH_INPUT_SHAPE: int
    target_name: Repeated[str]
    kind: int
    source_input: Repeated[str]

class ModelConfig(Message):
    name: str
    platform: str
    backend: str
    runtime: str
    version_policy: ModelVersionPolicy
    max_batch_size: int
    input: RepeatedMessage[ModelInput]
    output: RepeatedMessage[ModelOutput]
    batch_input: RepeatedMessage[BatchInput]
    batch_output: RepeatedMessage[BatchOutput]
    optimization: ModelOptimizationPolicy
    dynamic_batching: ModelDynamicBatching
    sequence_batching: ModelSequenceBatching
    ensemble_scheduling: ModelEnsembling
    instance_group: RepeatedMessage[ModelInstanceGroup]
    default_model_filename: str
    cc_model_filenames: Map[str, str]
    metric_tags: Map[str, str]
    parameters: Map[str, ModelParameter]
    model_warmup: RepeatedMessage[ModelWarmup]
    model_operations: ModelOperations
    model_transaction_policy: ModelTransactionPolicy
    model_repository_agents: ModelRepositoryAgents
    response_cache: ModelResponseCache
    model_metrics: ModelMetrics

class ModelDynamicBatching(Message):
    preferred_batch_size: Repeated[int]
    max_queue_delay_microseconds: int
    preserve_ordering: bool
    priority_levels: int
    default_priority_level: int
    default_queue_policy: ModelQueuePolicy
    priority_queue_policy: Map[int, ModelQueuePolicy]

class ModelEnsembling(Message):
    class Step(Message):
        model_name: str
        model_version: int
        input_map: Map[str, str]
        output_map: Map[str, str]
        model_namespace: str
    step: RepeatedMessage[ModelEnsembling.Step]
    max_inflight_requests: int

class ModelInput(Message):
    Format: EnumType
    FORMAT_NONE: int
    FORMAT_NHWC: int
    FORMAT_NCHW: int
    name: str
    data_type: int
    format: int
    dims: Repeated[int]
    reshape: ModelTensorReshape
    is_shape_tensor: bool
    allow_ragged_batch: bool
    optional: bool
    is_non_linear_format_io: bool

class ModelInstanceGroup(Message):
    Kind: EnumType
    KIND_AUTO: int
    KIND_GPU: int
    KIND_CPU: int
    KIND_MODEL: int
    class SecondaryDevice(Message):
        SecondaryDeviceKind: EnumType
        KIND_NVDLA: int
        kind: int
        device_id: int
    name: str
    kind: int
    count: int
    rate_limiter: ModelRateLimiter
    gpus: Repeated[int]
    secondary_devices: RepeatedMessage[ModelInstanceGroup.SecondaryDevice]
    profile: Repeated[str]
    passive: bool
    host_policy: str

class ModelMetrics(Message):
    class MetricControl(Message):
        class MetricIdentifier(Message):
            family: str
        class HistogramOptions(Message):
            buckets: Repeated[float]
        metric_identifier: ModelMetrics.MetricControl.MetricIdentifier
        histogram_options: ModelMetrics.MetricControl.HistogramOptions
    metric_control: RepeatedMessage[ModelMetrics.MetricControl]

class ModelOperations(Message):
    op_library_filename: Repeated[str]

class ModelOptimizationPolicy(Message):
    ModelPriority: EnumType
    PRIORITY_DEFAULT: int
    PRIORITY_MAX: int
    PRIORITY_MIN: int
    class Graph(Message):
        level: int
    class Cuda(Message):
        class GraphSpec(Message):
            class Shape(Message):
                dim: Repeated[int]
            class LowerBound(Message):
                batch_size: int
                input: Map[str, ModelOptimizationPolicy.Cuda.GraphSpec.Shape]
            batch_size: int
            input: Map[str, ModelOptimizationPolicy.Cuda.GraphSpec.Shape]
            graph_lower_bound: ModelOptimizationPolicy.Cuda.GraphSpec.LowerBound
        graphs: bool
        busy_wait_events: bool
        graph_spec: RepeatedMessage[ModelOptimizationPolicy.Cuda.GraphSpec]
        output_copy_stream: bool
    class ExecutionAccelerators(Message):
        class Accelerator(Message):
            name: str
            parameters: Map[str, str]
        gpu_execution_accelerator: RepeatedMessage[ModelOptimizationPolicy.ExecutionAccelerators.Accelerator]
        cpu_execution_accelerator: RepeatedMessage[ModelOptimizationPolicy.ExecutionAccelerators.Accelerator]
    class PinnedMemoryBuffer(Message):
        enable: bool
    graph: ModelOptimizationPolicy.Graph
    priority: int
    cuda: ModelOptimizationPolicy.Cuda
    execution_accelerators: ModelOptimizationPolicy.ExecutionAccelerators
    input_pinned_memory: ModelOptimizationPolicy.PinnedMemoryBuffer
    output_pinned_memory: ModelOptimizationPolicy.PinnedMemoryBuffer
    gather_kernel_buffer_threshold: int
    eager_batching: bool

class ModelOutput(Message):
    name: str
    data_type: int
    dims: Repeated[int]
    reshape: ModelTensorReshape
    label_filename: str
    is_shape_tensor: bool
    is_non_linear_format_io: bool

class ModelParameter(Message):
    string_value: str

class ModelQueuePolicy(Message):
    TimeoutAction: EnumType
    REJECT: int
    DELAY: int
    timeout_action: int
    default_timeout_microseconds: int
    allow_timeout_override: bool
    max_queue_size: int

class ModelRateLimiter(Message):
    class Resource(Message):
        name: str
        count: int
    resources: RepeatedMessage[ModelRateLimiter.Resource]
    priority: int

class ModelRepositoryAgents(Message):
    class Agent(Message):
        name: str
        parameters: Map[str, str]
    agents: RepeatedMessage[ModelRepositoryAgents.Agent]

class ModelResponseCache(Message):
    enable: bool

class ModelSequenceBatching(Message):
    class Control(Message):
        Kind: EnumType
        CONTROL_SEQUENCE_START: int
        CONTROL_SEQUENCE_READY: int
        CONTROL_SEQUENCE_END: int
        CONTROL_SEQUENCE_CORRID: int
        kind: int
        int32_false_true: Repeated[int]
        fp32_false_true: Repeated[float]
        bool_false_true: Repeated[bool]
        data_type: int
    class ControlInput(Message):
        name: str
        control: RepeatedMessage[ModelSequenceBatching.Control]
    class InitialState(Message):
        data_type: int
        dims: Repeated[int]
        zero_data: bool
        data_file: str
        name: str
    class State(Message):
        input_name: str
        output_name: str
        data_type: int
        dims: Repeated[int]
        initial_state: RepeatedMessage[ModelSequenceBatching.InitialState]
        use_same_buffer_for_input_output: bool
        use_growable_memory: bool
    class StrategyDirect(Message):
        max_queue_delay_microseconds: int
        minimum_slot_utilization: float
    class StrategyOldest(Message):
        max_candidate_sequences: int
        preferred_batch_size: Repeated[int]
        max_queue_delay_microseconds: int
        preserve_ordering: bool
    direct: ModelSequenceBatching.StrategyDirect
    oldest: ModelSequenceBatching.StrategyOldest
    max_sequence_idle_microseconds: int
    control_input: RepeatedMessage[ModelSequenceBatching.ControlInput]
    state: RepeatedMessage[ModelSequenceBatching.State]
    iterative_sequence: bool

class ModelTensorReshape(Message):
    shape: Repeated[int]

class ModelTransactionPolicy(Message):
    decoupled: bool

class ModelVersionPolicy(Message):
    class Latest(Message):
        num_versions: int
    class All(Message):
        pass
    class Specific(Message):
        versions: Repeated[int]
    latest: ModelVersionPolicy.Latest
    all: ModelVersionPolicy.All
    specific: ModelVersionPolicy.Specific

class ModelWarmup(Message):
    class Input(Message):
        data_type: int
        dims: Repeated[int]
        zero_data: bool
        random_data: bool
        input_data_file: str
    name: str
    batch_size: int
    inputs: Map[str, ModelWarmup.Input]
    count: int
