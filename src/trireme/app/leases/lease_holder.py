"""A front-end process's side of leases: workers come, and go back when they are asked for."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from typing import Final

from trireme.app.leases.leased_model import LeasedModel
from trireme.app.leases.shared_counts import SharedCounts
from trireme.frontends.processes import messages
from trireme.frontends.processes.client_connection import LeasedModels
from trireme.frontends.processes.process_link import Message
from trireme.observe.recent.record import NewRecords
from trireme.server.server import InferenceServer

log = logging.getLogger(__name__)

DESCRIPTORS: Final = 3
"""Of a worker's socket for messages and that for descriptors, and of the memory to count in."""


class LeaseHolder:
    """Implements `front_loop.LeaseHolder`. Used on the event loop's thread."""

    def __init__(self, server: InferenceServer, send: Callable[[Message], None], *, is_watched: bool = False) -> None:
        """`is_watched` where somebody wants to see single requests."""
        self._is_watched = is_watched
        self.models: LeasedModels = {}
        self._inference = server.inference
        self._send = send
        self._terms: dict[int, tuple[LeasedModel, list[int]]] = {}  # with their leases
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, message: Message, descriptors: list[int]) -> None:
        """A worker comes (LEASE)."""
        _, lease, term, version, config, has_strict_outputs, instance_name = message
        if len(descriptors) != DESCRIPTORS:
            log.error("a worker goes back: its sockets could not be received; there may be too many open files")
            for descriptor in descriptors:
                os.close(descriptor)
            return  # and closed, the worker goes back
        if term in self._terms:
            os.close(descriptors[2])
        else:
            self._begin_term(term, version, config, has_strict_outputs, SharedCounts(descriptors[2]))
        model, leases = self._terms[term]
        leases.append(lease)
        model.add(lease, instance_name, (socket.socket(fileno=descriptors[0]), socket.socket(fileno=descriptors[1])))

    def _begin_term(
        self, term: int, version: int, config: bytes, has_strict_outputs: bool, counts: SharedCounts
    ) -> None:
        model = LeasedModel(
            self._inference,
            config,
            version,
            has_strict_outputs,
            counts,
            on_large=lambda: self._send((messages.UNFIT, term, "its outputs are large")),
            on_new_records=self._tell_new_records if self._is_watched else None,
        )
        self._terms[term] = (model, [])
        for asked in ("", str(version)):
            self.models[model.name, asked] = model.start

    def _tell_new_records(self, model: str, version: str, new_records: NewRecords) -> None:
        self._send((messages.NEW_RECORDS, model, version, new_records))

    def give_back(self, lease: int) -> None:
        """The worker is to go back (RECALL)."""
        for term, (model, leases) in list(self._terms.items()):
            if lease not in leases:
                continue
            leases.remove(lease)
            if not leases:
                self._end_term(term, model)
            task = asyncio.get_running_loop().create_task(model.remove(lease))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _end_term(self, term: int, model: LeasedModel) -> None:
        del self._terms[term]
        model.close()
        for key in [key for key, start in self.models.items() if start == model.start]:
            del self.models[key]
