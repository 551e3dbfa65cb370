"""The end of all models: waits for their last requests, then for their backends, and says what it waits for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from trireme.registry.model import Model
from trireme.registry.served_models import ServedModels

log = logging.getLogger(__name__)

Progress = Callable[[str], None]
"""Told every line that says what the server still waits for."""


async def drain_models(
    models: ServedModels, timeout_s: float, count_operations: Callable[[], int], progress: Progress | None = None
) -> bool:
    """True when everything has ended within the time. Models are stopped only when no request is left anywhere,
    since a request may still need any of them: for an ensemble's next step, or for a call from inside a model."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    report = progress or log.info
    log.info("Waiting for in-flight requests to complete.")

    def report_requests() -> bool:
        busy = [model for model in _all_models(models) if model.inflight_count]
        report(f"Timeout {_left(deadline)}: Found {len(busy)} model versions that have in-flight inferences")
        for model in busy:
            count = model.inflight_count
            report(f"Model '{model.name}' (version {model.version}) has {count} in-flight inferences")
        return bool(busy)

    def has_models() -> bool:
        for record in models.records.values():  # again and again: a load that had all but ended puts its model in place
            models.withdraw(record, list(record.versions))
        return bool(models.draining or count_operations())

    def report_models() -> bool:
        is_busy = has_models()
        live, operations = len(models.draining), count_operations()
        report(f"Timeout {_left(deadline)}: Found {live} live models and {operations} in-flight non-inference requests")
        return is_busy

    if not await _until_done(report_requests, lambda: _has_requests(models), deadline):
        return False
    log.info("All models are stopped, unloading models")
    models.is_stopped = True
    return await _until_done(report_models, has_models, deadline)


async def _until_done(report: Callable[[], bool], is_busy: Callable[[], bool], deadline: float) -> bool:
    """Reports at once and then every second; looks more often, so that a quick end is not slept through."""
    loop = asyncio.get_running_loop()
    while report():
        next_report = min(loop.time() + 1, deadline)
        while is_busy() and loop.time() < next_report:  # noqa: ASYNC110 - many owners, none of which signals its end
            await asyncio.sleep(0.02)
        if is_busy() and loop.time() >= deadline:
            return False
    return True


def _has_requests(models: ServedModels) -> bool:
    return any(model.inflight_count for model in _all_models(models))


def _all_models(models: ServedModels) -> list[Model]:
    return [*models.serving(), *models.draining]


def _left(deadline: float) -> int:
    return max(0, round(deadline - asyncio.get_running_loop().time()))
