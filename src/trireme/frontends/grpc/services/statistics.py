"""ModelStatistics."""

from __future__ import annotations

from typing import Any

from trireme.frontends.grpc.services.rpc import INFERENCE_SERVICE, unary
from trireme.proto import service_pb2
from trireme.server.statistics import BATCH_PHASES, REQUEST_PHASES, RESPONSE_PHASES


def _model_statistics(server: Any, request: Any) -> Any:
    response = service_pb2.ModelStatisticsResponse()
    for snapshot in server.statistics.models(request.name, request.version):
        entry = response.model_stats.add(
            name=snapshot.name,
            version=snapshot.version,
            last_inference=snapshot.last_inference_ms,
            inference_count=snapshot.inference_count,
            execution_count=snapshot.execution_count,
        )
        _copy_durations(snapshot, entry.inference_stats, REQUEST_PHASES)
        for batch in snapshot.batches:
            _copy_durations(batch, entry.batch_stats.add(batch_size=batch.batch_size), BATCH_PHASES)
        for index, stats in snapshot.responses.items():
            _copy_durations(stats, entry.response_stats[index], RESPONSE_PHASES)
    return response


def _copy_durations(source: Any, target: Any, phases: tuple[str, ...]) -> None:
    for phase in phases:
        duration = getattr(source, phase)
        field = getattr(target, phase)
        field.SetInParent()  # a phase that never ran is there all the same
        field.count = duration.count
        field.ns = duration.ns


STATISTICS_METHODS = (
    unary(f"/{INFERENCE_SERVICE}/ModelStatistics", "statistics", service_pb2.ModelStatisticsRequest, _model_statistics),
)
