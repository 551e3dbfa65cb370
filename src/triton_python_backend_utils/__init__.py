"""`import triton_python_backend_utils as pb_utils`: what a Python model uses to read requests and write responses.

In the stub process of a real Triton that finds this file, Triton's own takes its place: both servers can be tried in
one environment.
"""

import sys

if "c_python_backend_utils" in sys.builtin_module_names:  # only Triton's stub brings it
    from trireme.backends.python.original_module import put_original_in_place

    put_original_in_place(__name__, __file__)
else:
    from trireme.backends.python.pb_utils.control import get_model_dir, is_model_ready, load_model, unload_model
    from trireme.backends.python.pb_utils.errors import TritonError, TritonModelException
    from trireme.backends.python.pb_utils.logger import Logger
    from trireme.backends.python.pb_utils.lookup import (
        get_input_config_by_name,
        get_input_tensor_by_name,
        get_output_config_by_name,
        get_output_tensor_by_name,
        using_decoupled_model_transaction_policy,
    )
    from trireme.backends.python.pb_utils.metrics import Metric, MetricFamily
    from trireme.backends.python.pb_utils.model_config import ModelConfig
    from trireme.backends.python.pb_utils.request import InferenceRequest, InferenceTrace
    from trireme.backends.python.pb_utils.response import InferenceResponse
    from trireme.backends.python.pb_utils.response_iterator import ResponseIterator
    from trireme.backends.python.pb_utils.sender import InferenceResponseSender
    from trireme.backends.python.pb_utils.tensor import Tensor
    from trireme.backends.python.pb_utils.types import (
        TRITON_STRING_TO_NUMPY,
        TRITONSERVER_MEMORY_CPU,
        TRITONSERVER_MEMORY_GPU,
        TRITONSERVER_REQUEST_FLAG_SEQUENCE_END,
        TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
        TRITONSERVER_REQUEST_RELEASE_ALL,
        TRITONSERVER_REQUEST_RELEASE_RESCHEDULE,
        TRITONSERVER_RESPONSE_COMPLETE_FINAL,
        PreferredMemory,
        deserialize_bytes_tensor,
        numpy_to_triton_type,
        serialize_byte_tensor,
        triton_string_to_numpy,
        triton_to_numpy_type,
    )

__all__ = [
    "TRITONSERVER_MEMORY_CPU",
    "TRITONSERVER_MEMORY_GPU",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
    "TRITONSERVER_REQUEST_RELEASE_ALL",
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE",
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL",
    "TRITON_STRING_TO_NUMPY",
    "InferenceRequest",
    "InferenceResponse",
    "InferenceResponseSender",
    "InferenceTrace",
    "Logger",
    "Metric",
    "MetricFamily",
    "ModelConfig",
    "PreferredMemory",
    "ResponseIterator",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "deserialize_bytes_tensor",
    "get_input_config_by_name",
    "get_input_tensor_by_name",
    "get_model_dir",
    "get_output_config_by_name",
    "get_output_tensor_by_name",
    "is_model_ready",
    "load_model",
    "numpy_to_triton_type",
    "serialize_byte_tensor",
    "triton_string_to_numpy",
    "triton_to_numpy_type",
    "unload_model",
    "using_decoupled_model_transaction_policy",
]
