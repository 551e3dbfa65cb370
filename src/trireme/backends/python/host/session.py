"""One life of one worker process, as the server sees it: its start, the questions and answers, its end."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from trireme.backends.python.channel import messages
from trireme.backends.python.host.calls import BlsCalls
from trireme.backends.python.host.child_links import ChildLinks
from trireme.backends.python.host.control import Control
from trireme.backends.python.host.instance import PythonInstance
from trireme.backends.python.host.link import CLOSED, HostLink, Routes
from trireme.backends.python.host.tensor_messages import error_of
from trireme.backends.python.process.exit_report import MISBEHAVED, ExitReport, cause_of, describe_exit, oom_kills
from trireme.backends.python.process.socket_pairs import SocketPairs
from trireme.backends.python.process.worker_process import Launch, WorkerProcess
from trireme.backends.services import BackendServices
from trireme.core.errors import InternalError
from trireme.core.request import InferenceRequest

log = logging.getLogger(__name__)

READY_CHECK_TIMEOUT_S = 5.0
EXIT_WAIT_S = 1.0
"""How long a worker that closed its connection has to be gone, before it is killed."""


class WorkerSession:
    """A started worker process and the link to it. `lost` is done, with the reason, when it can be used no more."""

    def __init__(self, launch: Launch, instance_name: str, services: BackendServices, process: WorkerProcess) -> None:
        loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[str] = loop.create_future()
        self.facts: Mapping[str, Any] = {}
        self._services = services
        self._calls: BlsCalls | None = None
        self._instance: PythonInstance | None = None
        self._reply: asyncio.Future[tuple[Any, ...]] | None = None
        self._check: asyncio.Future[bool] | None = None
        self._check_token = 0
        self._lease: asyncio.Future[None] | None = None  # until the worker is back
        self.has_called = False
        """Whether the model has called another one, and may do so again at any time."""
        self._was_ready = True  # as the model last said; it came up, so it is until it says otherwise
        self._oom_kills = oom_kills()
        self._is_debug = launch.inherits_terminal
        self._name = instance_name
        self.process = process
        self._routes: Routes = {}
        self.link = HostLink(loop, self.process.sock, self.process.side, self._routes, self._lose)
        self._model_name = launch.model_name
        self._control = self._make_control(self.link)
        self._children = ChildLinks(self._make_calls, self._make_control)
        self._routes |= {
            messages.COMPLETED: self._on_reply,
            messages.READY: self._on_reply,
            messages.FAILED: self._on_reply,
            messages.FINALIZED: self._on_finalized,
            messages.READINESS: self._on_readiness,
            messages.CONTROL: self._control.on_control,
            messages.METRIC: self._control.on_metric,
            messages.LOG: self._control.on_log,
            messages.RETURNED: self._on_returned,
            messages.CHILDREN: lambda _: self._children.open(self.link.take_descriptor()),
        }
        self.process.exited.add_done_callback(self._on_exit)

    @classmethod
    async def open(cls, launch: Launch, instance_name: str, services: BackendServices) -> WorkerSession:
        """Starts a process; raises ServingError where the system cannot."""
        return cls(launch, instance_name, services, await WorkerProcess.start(launch, instance_name))

    async def auto_complete(self, settings: dict[str, Any], config_json: str) -> str:
        """The configuration as the model completes it; raises ServingError where the model fails or dies."""
        self.link.send((messages.CONFIGURE, settings))
        completed: str = (await self._ask((messages.AUTO_COMPLETE, config_json)))[1]
        return completed

    async def initialize(self, settings: dict[str, Any], arguments: dict[str, str]) -> None:
        """Returns when the model can serve; raises ServingError where it fails or dies."""
        self._name = settings["instance_name"]  # which the configuration had to be complete for
        self.link.send((messages.CONFIGURE, settings))  # anew after an auto-complete, which may have changed them
        self.facts = (await self._ask((messages.INITIALIZE, arguments)))[1]

    def serve(self, instance: PythonInstance) -> None:
        """From now on this worker executes the instance's batches."""
        self._instance = instance
        calls = self._calls = self._make_calls(self.link)
        self._routes[messages.RESULTS] = instance.on_results
        self._routes[messages.RESPONSE] = instance.on_response
        self._routes[messages.RESCHEDULE] = instance.on_reschedule
        self._routes[messages.MEASURED] = instance.on_measured
        self._routes[messages.CALL] = self._on_call
        self._routes[messages.CALL_CANCEL] = calls.on_cancel
        instance.connect(self.link, calls)

    def lend(self, lease: int) -> tuple[tuple[socket.socket, socket.socket], asyncio.Future[None]]:
        """Has the worker take its batches of another process, which gets the sockets that the caller keeps of these
        pairs. The future is done when that process has closed them and the worker is back, or gone. Raises OSError."""
        with SocketPairs() as pairs:
            self.link.hand_descriptors((messages.LEASE, lease), list(pairs.inherited))
            lent = pairs.keep()
        returned = self._lease = asyncio.get_running_loop().create_future()
        return lent, returned

    async def is_ready(self) -> bool:
        """Asks the model where it can say; callers that come while a question is out share its answer. A worker that
        executes a batch answers after it: until then its last answer counts."""
        if self.lost.done():
            return False
        if not self.facts.get("has_is_ready"):
            return True
        check = self._check or self._begin_check()
        if self._is_executing and not self.facts.get("is_async"):
            return self._was_ready
        return await asyncio.shield(check)

    def set_verbose_level(self, level: int) -> None:
        """Tells the worker which of the model's log lines are wanted."""
        self.link.send((messages.LOG_LEVEL, level))

    async def finalize(self, timeout_s: float | None) -> None:
        """Lets the model finalize and ends the process, by force where it takes longer. Never raises."""
        self.link.send((messages.FINALIZE,))
        try:
            await self.process.end(None if self._is_debug else timeout_s)
        finally:
            self.close()

    async def discard(self) -> None:
        """Ends the process at once."""
        self.process.send_signal(signal.SIGKILL)
        try:
            await self.process.wait(EXIT_WAIT_S)
        finally:
            self.close()

    async def report(self) -> ExitReport:
        """After `lost`: waits until the process is gone, and says why and what it printed last."""
        why = self.lost.result()
        has_left = await self.process.wait(EXIT_WAIT_S if why == CLOSED else 0.0)
        if has_left:
            reason, cause = cause_of(self.process.exited.result(), self._oom_kills, oom_kills())
        else:
            reason, cause = MISBEHAVED, f"was killed because {why}"
            self.process.send_signal(signal.SIGKILL)
            await self.process.wait(EXIT_WAIT_S)
        output = self.process.output
        if output is not None:
            output.drain()
        tail = output.last_lines if output is not None else []
        return ExitReport(reason, describe_exit(self.process.pid, cause, tail))

    def close(self) -> None:
        """Lets go of everything; the process must be ended by other means."""
        self.process.exited.remove_done_callback(self._on_exit)
        self.link.close()
        self.process.close()
        if self._calls is not None:
            self._calls.close()
            self._calls = None
        self._control.close()
        self._children.close()
        self._settle_check(False)
        if not self.lost.done():
            self.lost.set_result("it was ended")
        self._on_returned(())

    def _make_control(self, link: HostLink, part: str = "") -> Control:
        """For the worker or a part of it that has its own metrics."""
        owner = f"{self._name} ({self.process.pid}{part and f', {part}'})"
        return Control(link, owner, self._model_name, self._services.model_control, self._services.metrics)

    def _make_calls(self, link: HostLink) -> BlsCalls:
        return BlsCalls(link, self._services.inference, self._services.is_decoupled, self._request_of, self._running)

    def _request_of(self, key: int) -> InferenceRequest | None:
        return None if self._instance is None else self._instance.request_of(key)

    def _running(self) -> Sequence[InferenceRequest]:
        return () if self._instance is None else self._instance.running

    async def _ask(self, question: tuple[Any, ...]) -> tuple[Any, ...]:
        reply = self._reply = asyncio.get_running_loop().create_future()
        self.link.send(question)
        await asyncio.wait((reply, self.lost), return_when=asyncio.FIRST_COMPLETED)
        if not reply.done():
            raise InternalError(f"Stub process '{self._name}' is not healthy. {(await self.report()).text}")
        answer: tuple[Any, ...] = reply.result()
        if answer[0] == messages.FAILED:
            _, kind, text, trace = answer
            if trace:
                log.debug("'%s' failed:\n%s", self._name, trace)
            raise error_of((kind, text))
        return answer

    def _on_reply(self, message: tuple[Any, ...]) -> None:
        reply, self._reply = self._reply, None
        if reply is not None and not reply.done():
            reply.set_result(message)

    def _on_call(self, message: tuple[Any, ...]) -> None:
        self.has_called = True
        if self._calls is not None:
            self._calls.on_call(message)

    def _on_returned(self, _message: tuple[Any, ...]) -> None:
        lease, self._lease = self._lease, None
        if lease is not None and not lease.done():
            lease.set_result(None)

    def _on_finalized(self, _message: tuple[Any, ...]) -> None:
        log.debug("'%s' is finalized", self._name)

    @property
    def _is_executing(self) -> bool:
        """Whether it has a batch, or may have one of another process."""
        return self._lease is not None or (self._instance is not None and self._instance.is_executing)

    def _begin_check(self) -> asyncio.Future[bool]:
        check = self._check = asyncio.get_running_loop().create_future()
        self._check_token += 1
        self.link.send((messages.CHECK_READY, self._check_token))
        if not self._is_debug:
            asyncio.get_running_loop().call_later(READY_CHECK_TIMEOUT_S, self._expire_check, check)
        return check

    def _on_readiness(self, message: tuple[Any, ...]) -> None:
        _, token, is_ready, reason = message
        if not is_ready and reason:
            log.warning("'%s' says that it is not ready: %s", self._name, reason)
        self._was_ready = bool(is_ready)
        if token == self._check_token:
            self._settle_check(self._was_ready)

    def _expire_check(self, check: asyncio.Future[bool]) -> None:
        if check is not self._check:
            return
        if self._is_executing:
            self._settle_check(self._was_ready)  # it waits behind a batch
            return
        log.warning("is_ready of '%s' did not answer within %g s", self._name, READY_CHECK_TIMEOUT_S)
        self._settle_check(False)

    def _settle_check(self, is_ready: bool) -> None:
        check, self._check = self._check, None
        if check is not None and not check.done():
            check.set_result(is_ready)

    def _on_exit(self, _exited: asyncio.Future[int]) -> None:
        self.link.drain()
        self.link.close()
        self._lose(CLOSED)

    def _lose(self, reason: str) -> None:
        self._settle_check(False)
        if not self.lost.done():
            self.lost.set_result(reason)
        self._on_returned(())
