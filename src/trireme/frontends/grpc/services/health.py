"""ServerLive, ServerReady and ModelReady."""

from __future__ import annotations

from typing import Any

from trireme.frontends.grpc.services.rpc import INFERENCE_SERVICE, unary
from trireme.proto import service_pb2


def _server_live(server: Any, _: Any) -> Any:
    return service_pb2.ServerLiveResponse(live=server.health.is_live())


async def _server_ready(server: Any, _: Any) -> Any:
    return service_pb2.ServerReadyResponse(ready=await server.health.is_ready())


async def _model_ready(server: Any, request: Any) -> Any:
    is_ready = await server.health.is_model_ready(request.name, request.version)
    return service_pb2.ModelReadyResponse(ready=is_ready)


SERVER_HEALTH_METHODS = (
    unary(f"/{INFERENCE_SERVICE}/ServerLive", "health", service_pb2.ServerLiveRequest, _server_live),
    unary(f"/{INFERENCE_SERVICE}/ServerReady", "health", service_pb2.ServerReadyRequest, _server_ready),
    unary(f"/{INFERENCE_SERVICE}/ModelReady", "health", service_pb2.ModelReadyRequest, _model_ready),
)
