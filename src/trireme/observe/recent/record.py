"""One request that is over, as it is kept, and as it goes from one process to another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from trireme.core.batch import BatchTiming
from trireme.observe.recent.traces import KeptTrace

PlainRecord = tuple[Any, ...]
"""A record of plain values alone: without a trace and what was in it, and without the numbers of its own process."""
NewRecords = tuple[list[PlainRecord], list[PlainRecord], int]
"""Slow and failed requests of a model, and how many have failed."""


class RequestRecord(NamedTuple):
    """One request that is over. Of its tensors nothing is kept here."""

    end_ns: int
    model: str
    version: str
    request_id: str
    batch_size: int
    total_ns: int
    parse_ns: int
    queue_ns: int
    timing: BatchTiming | None
    """None for one that did not run."""
    reason: str
    """Why it failed, as the failure metric labels it; "CANCELED" where its client did not want it any more, even if
    the model had it by then; "REFUSED" where it was never taken; else empty."""
    message: str
    trace: KeptTrace | None
    """Its way, where it was traced."""
    own_id: int = 0
    """By which the requests that it has made are known, together with the times: numbers are used again."""
    parent_id: int = 0
    """The same of the request that has made it; 0 for a client's."""
    measured: Mapping[str, tuple[int, int]] | None = None
    """What its model has measured of it, by name: how often, and nanoseconds altogether."""
    excerpt_number: int = 0
    """By which `RecentExcerpts` knows what was in it; 0 where it was not recorded."""


def plain_of(record: RequestRecord) -> PlainRecord:
    """What another process is told of it."""
    timing, measured = record.timing, record.measured
    return (*record[:8], timing and tuple(timing), record.reason, record.message, measured and dict(measured))


def record_of(plain: PlainRecord) -> RequestRecord:
    """What another process has told."""
    timing, reason, message, measured = plain[8:]
    ran = timing and BatchTiming(*timing)
    return RequestRecord._make((*plain[:8], ran, reason, message, None, 0, 0, measured, 0))
