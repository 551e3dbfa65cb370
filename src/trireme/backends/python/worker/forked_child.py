"""Processes that a model forks, as `multiprocessing` does: each gets a link of its own to the server when it first asks
something of it, because its parent's can have only one reader."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from typing import Any

from trireme.backends.python.channel import messages
from trireme.backends.python.pb_utils import runtime as pb_runtime
from trireme.backends.python.pb_utils.runtime import Runtime
from trireme.backends.python.pb_utils.server_calls import ServerCalls
from trireme.backends.python.worker.link import Link


class ForkedChildren:
    """What a worker and its children do around a fork. Before the first one the server is given one end of a socket on
    which children hand it the sockets of their links; they inherit the other end."""

    def __init__(self, link: Link, runtime: Runtime, on_terminate: object) -> None:
        self._links = [link]  # those that this process and its parents opened
        self._runtime = runtime
        self._on_terminate = on_terminate  # the worker's own handler of SIGTERM, which is not for children
        self._handoff: socket.socket | None = None
        self._forking = threading.local()  # its `mask`: the signals that the thread held back before

    def install(self) -> None:
        os.register_at_fork(
            before=self._before, after_in_parent=self._take_signals_again, after_in_child=self._in_child
        )

    def _before(self) -> None:
        # Python forgets what reaches a child before it runs: one that is ended at once would not end.
        self._forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        if self._handoff is not None:
            return
        handoff, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with server_end, contextlib.suppress(OSError):  # the server is gone, and the child will find that out
            self._links[0].send_descriptor((messages.CHILDREN,), server_end.fileno())
        self._handoff = handoff

    def _in_child(self) -> None:
        """No lock may be taken here that another thread of the parent may have held."""
        for link in self._links:
            link.close_sockets()
        if signal.getsignal(signal.SIGTERM) is self._on_terminate:
            with contextlib.suppress(ValueError):  # not in the main thread of an interpreter
                signal.signal(signal.SIGTERM, signal.SIG_DFL)  # by which its parent ends it
        self._take_signals_again()
        pb_runtime.forget(self._connect)

    def _take_signals_again(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._forking.mask)

    def _connect(self) -> Runtime:
        """What stands behind pb_utils in this process from now on."""
        assert self._handoff is not None
        sock, server_sock = socket.socketpair()
        side, server_side = socket.socketpair()
        with server_sock, server_side:
            socket.send_fds(self._handoff, [b"\0"], [server_sock.fileno(), server_side.fileno()])
        receiver = _Receiver()
        link = Link(sock, side, receiver.receive, lost=lambda: None)
        self._links.append(link)
        receiver.calls = ServerCalls(link)
        parent, runtime = self._runtime, Runtime(link, receiver.calls)
        runtime.model_dir, runtime.instance_name = parent.model_dir, parent.instance_name
        runtime.verbose_level, runtime.phase = parent.verbose_level, parent.phase
        runtime.is_decoupled = parent.is_decoupled
        return runtime


class _Receiver:
    """Takes what the server sends to a child."""

    calls: ServerCalls

    def receive(self, message: tuple[Any, ...]) -> bool:
        """False: a child has no main thread that would be asked to do something."""
        if message[0] == messages.CALL_RESPONSE:
            self.calls.on_call_response(message)
        elif message[0] == messages.CONTROL_RESULT:
            self.calls.on_result(message)
        return False
