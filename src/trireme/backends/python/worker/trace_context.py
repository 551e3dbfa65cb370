"""The distributed trace of a request around the model's execute, so that spans made in there join it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable


def enter_trace(carrier: str) -> Callable[[], None] | None:
    """Makes the request's context the current one; returns what ends that. None where the model does not use
    OpenTelemetry: nobody would look."""
    if "opentelemetry" not in sys.modules:
        return None
    from opentelemetry import context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    token = context.attach(TraceContextTextMapPropagator().extract(json.loads(carrier)))
    return lambda: context.detach(token)
