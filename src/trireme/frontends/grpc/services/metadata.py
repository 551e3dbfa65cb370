"""ServerMetadata, ModelMetadata and ModelConfig."""

from __future__ import annotations

from typing import Any

from trireme.frontends.grpc.services.rpc import INFERENCE_SERVICE, unary
from trireme.proto import service_pb2


def _server_metadata(server: Any, _: Any) -> Any:
    metadata = server.metadata.server()
    return service_pb2.ServerMetadataResponse(
        name=metadata.name, version=metadata.version, extensions=metadata.extensions
    )


def _model_metadata(server: Any, request: Any) -> Any:
    metadata = server.metadata.model(request.name, request.version)
    response = service_pb2.ModelMetadataResponse(
        name=metadata.name, versions=metadata.versions, platform=metadata.platform
    )
    for field, tensors in ((response.inputs, metadata.inputs), (response.outputs, metadata.outputs)):
        for tensor in tensors:
            field.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
    return response


def _model_config(server: Any, request: Any) -> Any:
    config = server.metadata.config(request.name, request.version)
    return service_pb2.ModelConfigResponse(config=config.message)


METADATA_METHODS = (
    unary(f"/{INFERENCE_SERVICE}/ServerMetadata", "metadata", service_pb2.ServerMetadataRequest, _server_metadata),
    unary(f"/{INFERENCE_SERVICE}/ModelMetadata", "metadata", service_pb2.ModelMetadataRequest, _model_metadata),
    unary(f"/{INFERENCE_SERVICE}/ModelConfig", "model-config", service_pb2.ModelConfigRequest, _model_config),
)
