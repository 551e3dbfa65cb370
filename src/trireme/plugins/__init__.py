"""What a backend of another package is written with: the protocols that it implements, and what it gets and gives."""

from trireme.backends.python.host.backend import PythonBackend
from trireme.backends.services import BackendServices, ModelSource
from trireme.config.message import ConfigMessage, copy_of
from trireme.config.model_config import ModelConfig
from trireme.core.batch import Batch, BatchTiming
from trireme.core.errors import ErrorKind, ServingError
from trireme.core.ports import Backend, BatchRunner, Instance
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor

__all__ = [
    "Backend",
    "BackendServices",
    "Batch",
    "BatchRunner",
    "BatchTiming",
    "ConfigMessage",
    "ErrorKind",
    "InferenceRequest",
    "InferenceResponse",
    "Instance",
    "ModelConfig",
    "ModelSource",
    "PythonBackend",
    "ServingError",
    "Tensor",
    "copy_of",
]
