"""What all connections of the listener share: the server behind it, the options, codecs with their caches, counts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from trireme.core.threads.pools import create_threads
from trireme.frontends.connection_slots import SharedLimits
from trireme.frontends.grpc.options import GrpcFrontendOptions
from trireme.frontends.inflating import Inflation
from trireme.protocol.v2.grpc_request import InferRequestDecoder
from trireme.protocol.v2.grpc_response import InferResponseEncoder
from trireme.server.long_work import ShortSteps

if TYPE_CHECKING:
    from trireme.server.server import InferenceServer

log = logging.getLogger(__name__)


class ServiceContext:
    """One per listener; changed only on the event loop's thread."""

    __slots__ = (
        "_fault_counts",
        "call_count",
        "calls",
        "decoder",
        "encoder",
        "inflation",
        "inflight",
        "is_stopping",
        "leaving",
        "loop",
        "options",
        "process_delay_s",
        "response_delay_s",
        "server",
        "slots",
        "tasks",
        "threads",
        "tracing",
    )

    def __init__(
        self,
        server: InferenceServer,
        options: GrpcFrontendOptions,
        loop: asyncio.AbstractEventLoop,
        shared: SharedLimits | None = None,
    ) -> None:
        shared = shared or SharedLimits()
        self.slots = shared.slots
        self.inflight = shared.inflight
        self.server = server
        self.calls = server.calls
        self.tracing = server.tracing
        self.options = options
        self.loop = loop
        self.process_delay_s = options.process_delay_s
        self.response_delay_s = options.response_delay_s
        self.decoder = InferRequestDecoder()
        self.encoder = InferResponseEncoder()
        self.call_count = 0
        self._fault_counts: dict[str, int] = {}  # by the reason, of which there are as many as the code has
        self.is_stopping = False
        self.leaving = ShortSteps(loop)
        """What is cancelled because its clients have left."""
        self.tasks: set[asyncio.Task[None]] = set()
        self.threads: ThreadPoolExecutor = create_threads("grpc")
        self.inflation = Inflation("grpc")

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts a task and keeps it from being collected."""
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def note_fault(self, reason: str, peer: str) -> None:
        """A client's connection was closed for a fault of it. The 1st, 2nd, 4th time and so on are logged, so that
        somebody who looks for lost connections finds them and a flood fills no log."""
        count = self._fault_counts[reason] = self._fault_counts.get(reason, 0) + 1
        if count & (count - 1) == 0:
            log.warning("gRPC connection of %s closed: %s (%d times so far)", peer, reason, count)

    def close(self) -> None:
        """Cancels the tasks, and lets the threads end with what they have begun."""
        for task in list(self.tasks):
            task.cancel()
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.inflation.close()
