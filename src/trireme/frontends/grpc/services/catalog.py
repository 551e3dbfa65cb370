"""Every method the listener serves, by path."""

from __future__ import annotations

from trireme.frontends.grpc.plan import Method
from trireme.frontends.grpc.services.grpc_health import HEALTH_METHODS
from trireme.frontends.grpc.services.health import SERVER_HEALTH_METHODS
from trireme.frontends.grpc.services.infer import InferCall
from trireme.frontends.grpc.services.metadata import METADATA_METHODS
from trireme.frontends.grpc.services.reflection import REFLECTION_METHODS
from trireme.frontends.grpc.services.repository import REPOSITORY_METHODS
from trireme.frontends.grpc.services.rpc import INFERENCE_SERVICE
from trireme.frontends.grpc.services.settings import SETTINGS_METHODS
from trireme.frontends.grpc.services.shared_memory import SHARED_MEMORY_METHODS
from trireme.frontends.grpc.services.statistics import STATISTICS_METHODS
from trireme.frontends.grpc.services.stream_infer import StreamInferCall

_INFERENCE_METHODS = (
    Method(f"/{INFERENCE_SERVICE}/ModelInfer".encode(), "inference", InferCall, is_inference=True),
    Method(
        f"/{INFERENCE_SERVICE}/ModelStreamInfer".encode(),
        "inference",
        StreamInferCall,
        is_inference=True,
        counts_messages=True,
    ),
)


def all_methods() -> dict[bytes, Method]:
    """The methods of all services."""
    groups = (
        _INFERENCE_METHODS,
        SERVER_HEALTH_METHODS,
        METADATA_METHODS,
        STATISTICS_METHODS,
        REPOSITORY_METHODS,
        SHARED_MEMORY_METHODS,
        SETTINGS_METHODS,
        HEALTH_METHODS,
        REFLECTION_METHODS,
    )
    return {method.path: method for group in groups for method in group}
