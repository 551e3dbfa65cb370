"""What `trireme neuron-model` was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PYTORCH, TENSORFLOW, ONNX = "pytorch", "tensorflow", "onnx"


class NeuronModelError(Exception):
    """No model folder can be written like this; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class TensorOption:
    """An input or output."""

    name: str
    datatype: str
    """Wire name."""
    dims: tuple[int, ...]
    """-1 where variable."""


@dataclass(frozen=True, slots=True)
class CoreRange:
    """The NeuronCores of all instances together, both ends included."""

    first: int
    last: int

    @property
    def count(self) -> int:
        """How many cores these are."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class BatchingOptions:
    """How requests are put together."""

    max_batch_size: int = 0
    is_dynamic: bool = False
    preferred_size: int | None = None
    """Without effect unless dynamic, as the next."""
    max_queue_delay_us: int | None = None
    joins_requests: bool = True
    """Whether the requests of one execution go to the device in one call."""


@dataclass(frozen=True, slots=True)
class NeuronModelOptions:
    """What one model folder is made of."""

    model_type: str
    """One of the constants above."""
    compiled_model: str
    """As it was given: a path, absolute or from here, or from the model's folder."""
    model_dir: Path
    """Its last part is the model's name."""
    cores: CoreRange
    inputs: tuple[TensorOption, ...] = ()
    """None: to be read from the file; as for the outputs."""
    outputs: tuple[TensorOption, ...] = ()
    batching: BatchingOptions = BatchingOptions()
    threads_per_core: int = 1
    instance_count: int = 1
    version: int = 1
    tag_set: str = "serve"
    """Of SavedModels, as the next."""
    signature_key: str = "serving_default"
    compiled_batch_size: int | None = None
    """Rows that the compiled model takes, neither more nor fewer; None where it takes any number."""
    is_inf2: bool = False
    """Whether torch_neuronx, and not torch_neuron, is the library."""
    writes_python_model: bool = False
    """Whether a model.py is written, for the python backend."""

    @property
    def name(self) -> str:
        """What the model is called."""
        return self.model_dir.name
