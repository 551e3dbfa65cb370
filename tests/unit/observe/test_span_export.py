"""Spans on their way to a collector that is away."""

from __future__ import annotations

import socket
import time

import pytest

from trireme.core import trace as marks
from trireme.core.trace import Trace
from trireme.observe import opentelemetry_export

ATTEMPT_S = 2


@pytest.fixture
def deaf_url() -> str:
    """Nobody listens there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/v1/traces"


def finished_trace(number: int) -> Trace:
    trace = Trace(number)
    trace.model_name = "m"
    trace.begin_span(None)
    trace.mark(marks.REQUEST_START, 1)
    trace.mark(marks.REQUEST_END, 2)
    return trace


@pytest.mark.parametrize("is_known_to_be_away", [False, True])
def test_the_end_does_not_wait_for_every_batch_of_a_collector_that_is_away(
    deaf_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_known_to_be_away: bool
) -> None:
    monkeypatch.setattr(opentelemetry_export, "_EXPORT_TIMEOUT_S", ATTEMPT_S)
    settings = {
        "url": deaf_url,
        "bsp_max_queue_size": "100",
        "bsp_schedule_delay": "10",
        "bsp_max_export_batch_size": "1",
    }
    spans = opentelemetry_export.SpanExport(settings, {})
    for number in range(1, 21):
        spans.add(finished_trace(number))
    deadline = time.monotonic() + 20 * ATTEMPT_S
    while is_known_to_be_away and not caplog.records and time.monotonic() < deadline:
        time.sleep(0.01)
    begin = time.monotonic()
    spans.close()
    assert time.monotonic() - begin < 5 * ATTEMPT_S, "twenty batches would each take their time"
    assert [record.levelname for record in caplog.records if "does not take spans" in record.message] == ["WARNING"]
