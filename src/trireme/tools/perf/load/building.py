"""Puts the parts of a load together for the process that runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trireme.tools.perf.load.calls import Call, Transport
from trireme.tools.perf.load.drivers import Check, ClosedLoop, Driver, OpenLoop, PeriodicLoop
from trireme.tools.perf.load.event_loop import EventLoop
from trireme.tools.perf.load.grpc_transport import GrpcTransport
from trireme.tools.perf.load.http_transport import HttpTransport
from trireme.tools.perf.load.records import Recorder
from trireme.tools.perf.load.sockets import Endpoint
from trireme.tools.perf.load.sources import PlainSource, RequestForm, RequestSource, SequenceSource
from trireme.tools.perf.load.stream_transport import StreamTransport
from trireme.tools.perf.options import LoadMode, PerfOptions
from trireme.tools.perf.wire import answers
from trireme.tools.perf.wire.grpc_headers import CallHeaders


@dataclass(frozen=True)
class LoadRecipe:
    """All that a load is made of."""

    options: PerfOptions
    endpoint: Endpoint
    streams: Sequence[Sequence[RequestForm]]
    """Prepared requests: one stream, or one per sequence."""
    kind: str
    """How answers come, as `answers` names it."""
    headers: CallHeaders | None = None
    is_sequence: bool = False
    has_own_lengths: bool = False
    is_decoupled: bool = False
    keeps_bodies: bool = False
    expected: Sequence[dict[str, bytes]] = ()
    """Outputs that each prepared request must bring; empty where nothing is compared."""
    make_driver: Callable[[Recorder], Driver] | None = None
    """What decides when to send, where that is neither a number of requests nor a rate."""

    def build(self, loop: EventLoop, recorder: Recorder) -> tuple[Driver, Transport]:
        """In the load's own process."""
        driver = self._driver(recorder) if self.make_driver is None else self.make_driver(recorder)
        return driver, self._transport(loop, driver)

    def _source(self) -> RequestSource:
        if self.is_sequence:
            options = self.options
            return SequenceSource(self.streams, options.sequences, self.has_own_lengths, options.seed)
        return PlainSource([form for stream in self.streams for form in stream])

    def _driver(self, recorder: Recorder) -> Driver:
        mode, source, check = self.options.mode, self._source(), self._check()
        if mode is LoadMode.CONCURRENCY:
            return ClosedLoop(source, recorder, check)
        if mode is LoadMode.PERIODIC_CONCURRENCY:
            return PeriodicLoop(source, recorder, check)
        sequences = self.options.sequences
        return OpenLoop(
            source,
            recorder,
            check,
            sequences=sequences.count if self.is_sequence else None,
            is_serial=sequences.is_serial,
        )

    def _transport(self, loop: EventLoop, driver: Driver) -> Transport:
        keeps = self.keeps_bodies or bool(self.expected)
        if self.kind in (answers.HTTP, answers.EVENTS, answers.TEXT):
            return HttpTransport(
                loop,
                self.endpoint,
                driver,
                keeps_bodies=keeps,
                streams=self.kind == answers.EVENTS,
                fault_of=answers.http_fault if self.kind == answers.HTTP else None,
            )
        assert self.headers is not None
        if self.kind in (answers.GRPC, answers.TENSORFLOW, answers.MESSAGES):
            reports_each = self.kind == answers.MESSAGES
            return GrpcTransport(
                loop, self.endpoint, driver, self.headers, keeps_bodies=keeps, reports_each=reports_each
            )
        return StreamTransport(
            loop, self.endpoint, driver, self.headers, keeps_bodies=keeps, is_decoupled=self.is_decoupled
        )

    def _check(self) -> Check | None:
        if not self.expected:
            return None

        def compare(call: Call, body: Any) -> str | None:
            expected = self.expected[call.content]
            if not expected or not call.outputs:
                return None
            return answers.mismatch(answers.outputs_of(self.kind, call.outputs[0]), expected)

        return compare
