"""Endpoints that describe: server and model metadata, configurations, statistics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import orjson

from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.head import Endpoint
from trireme.frontends.http.routing import Route, route
from trireme.server.statistics import BATCH_PHASES, REQUEST_PHASES, RESPONSE_PHASES

if TYPE_CHECKING:
    from trireme.server.metadata import TensorMetadata
    from trireme.server.server import InferenceServer

_MODEL = "/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[0-9]+))?"


class MetadataEndpoints:
    """Read-only answers made of what the server knows about itself."""

    def __init__(self, server: InferenceServer) -> None:
        self._server = server

    def routes(self) -> list[Route]:
        """The paths of these APIs."""
        statistics = Endpoint("statistics", self.statistics, reads_body=False)
        return [
            route("/v2", GET=Endpoint("metadata", self.server, reads_body=False)),
            route("/v2/models/stats", GET=statistics),
            route(_MODEL, GET=Endpoint("metadata", self.model, reads_body=False)),
            route(_MODEL + "/config", GET=Endpoint("model-config", self.config, reads_body=False)),
            route(_MODEL + "/stats", GET=statistics),
        ]

    def server(self, exchange: Exchange) -> None:
        """`GET /v2`."""
        metadata = self._server.metadata.server()
        exchange.send_json(
            orjson.dumps({"name": metadata.name, "version": metadata.version, "extensions": metadata.extensions})
        )

    def model(self, exchange: Exchange) -> None:
        """`GET /v2/models/<model>`."""
        metadata = self._server.metadata.model(exchange.head.model_name, exchange.head.model_version)
        exchange.send_json(
            orjson.dumps(
                {
                    "name": metadata.name,
                    "versions": metadata.versions,
                    "platform": metadata.platform,
                    "inputs": _tensors(metadata.inputs),
                    "outputs": _tensors(metadata.outputs),
                }
            )
        )

    def config(self, exchange: Exchange) -> None:
        """`GET /v2/models/<model>/config`."""
        exchange.send_json(self._server.metadata.config_json(exchange.head.model_name, exchange.head.model_version))

    def statistics(self, exchange: Exchange) -> None:
        """`GET /v2/models/stats` and `GET /v2/models/<model>/stats`."""
        snapshots = self._server.statistics.models(exchange.head.model_name, exchange.head.model_version)
        exchange.send_json(orjson.dumps({"model_stats": [_snapshot(snapshot) for snapshot in snapshots]}))


def _tensors(tensors: Iterable[TensorMetadata]) -> list[dict[str, Any]]:
    return [{"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape} for tensor in tensors]


def _snapshot(stats: Any) -> dict[str, Any]:
    measured = {name: {"count": entry.count, "ns": entry.ns} for name, entry in stats.measured.items()}
    return {
        "name": stats.name,
        "version": stats.version,
        "last_inference": stats.last_inference_ms,
        "inference_count": stats.inference_count,
        "execution_count": stats.execution_count,
        "inference_stats": _phases(stats, REQUEST_PHASES),
        "response_stats": {index: _phases(entry, RESPONSE_PHASES) for index, entry in stats.responses.items()},
        "batch_stats": [{"batch_size": entry.batch_size, **_phases(entry, BATCH_PHASES)} for entry in stats.batches],
        "memory_usage": [],
        **({"engine_stats": measured} if measured else {}),
    }


def _phases(stats: Any, names: Iterable[str]) -> dict[str, dict[str, int]]:
    durations = ((name, getattr(stats, name)) for name in names)
    return {name: {"count": duration.count, "ns": duration.ns} for name, duration in durations}
