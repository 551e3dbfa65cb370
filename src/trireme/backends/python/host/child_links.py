"""Links to the processes that a model has forked in its worker: they may ask what their parent may ask."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable

from trireme.backends.python.channel import messages
from trireme.backends.python.host.calls import BlsCalls
from trireme.backends.python.host.control import Control
from trireme.backends.python.host.link import HostLink, Routes

log = logging.getLogger(__name__)

MakeCalls = Callable[[HostLink], BlsCalls]
MakeControl = Callable[[HostLink, str], Control]
"""With the suffix that tells the child's metrics from its parent's."""


class ChildLinks:
    """Takes the sockets that children hand over, and serves each until it ends or the worker does."""

    def __init__(self, make_calls: MakeCalls, make_control: MakeControl) -> None:
        self._loop = asyncio.get_running_loop()
        self._make_calls = make_calls
        self._make_control = make_control
        self._handoff: socket.socket | None = None
        self._children: dict[HostLink, tuple[BlsCalls, Control]] = {}
        self._count = 0

    def open(self, descriptor: int) -> None:
        """Children come through this socket from now on."""
        if self._handoff is not None:
            self._close_handoff(self._handoff)
        self._handoff = socket.socket(fileno=descriptor)
        self._handoff.setblocking(False)
        self._loop.add_reader(self._handoff.fileno(), self._take, self._handoff)

    def close(self) -> None:
        """The worker is gone."""
        if self._handoff is not None:
            self._close_handoff(self._handoff)
            self._handoff = None
        for link in list(self._children):
            link.close()
            self._forget(link)

    def _take(self, handoff: socket.socket) -> None:
        try:
            content, descriptors, _, _ = socket.recv_fds(handoff, 1, 2)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            content, descriptors = b"", []
        if not content:
            self._close_handoff(handoff)
            self._handoff = None
        elif len(descriptors) == 2:
            self._connect(*(socket.socket(fileno=descriptor) for descriptor in descriptors))
        else:
            log.error("a process that a model forked handed over %d sockets in place of two", len(descriptors))
            for descriptor in descriptors:
                socket.socket(fileno=descriptor).close()

    def _connect(self, sock: socket.socket, side: socket.socket) -> None:
        routes: Routes = {}
        link = HostLink(self._loop, sock, side, routes, lambda _reason: self._forget(link))
        self._count += 1
        calls, control = self._make_calls(link), self._make_control(link, f"child {self._count}")
        self._children[link] = calls, control
        routes |= {
            messages.CALL: calls.on_call,
            messages.CALL_CANCEL: calls.on_cancel,
            messages.CONTROL: control.on_control,
            messages.METRIC: control.on_metric,
            messages.LOG: control.on_log,
        }

    def _forget(self, link: HostLink) -> None:
        calls, control = self._children.pop(link)
        calls.close()
        control.close()

    def _close_handoff(self, handoff: socket.socket) -> None:
        with contextlib.suppress(OSError):
            self._loop.remove_reader(handoff.fileno())
        handoff.close()
