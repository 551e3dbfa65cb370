"""Keeps one instance alive: starts its worker, tells why one died, answers what it had, and starts the next."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from trireme.backends.python.host.instance import PythonInstance
from trireme.backends.python.host.quarantine import KILLS_BEFORE_REFUSAL, Quarantine
from trireme.backends.python.host.session import WorkerSession
from trireme.backends.python.host.worker_recipe import WorkerRecipe
from trireme.backends.python.process.backoff import Backoff
from trireme.backends.python.process.exit_report import NOT_STARTED
from trireme.config.load_timeout import load_timeout_s, took_too_long
from trireme.core.errors import InternalError, ServingError, UnavailableError
from trireme.core.ports import BatchRunner, WorkerWatch

log = logging.getLogger(__name__)

_LEND_POLL_S = 0.001


class WorkerLease:
    """A worker in the hands of another process."""

    def __init__(
        self, session: WorkerSession, sockets: tuple[socket.socket, socket.socket], returned: asyncio.Future[None]
    ) -> None:
        self._session = session
        self.sockets = sockets
        """For that process; whoever hands them over closes them."""
        self.returned = returned
        """Done when the worker is back, or gone."""
        self.recall: Callable[[], None] | None = None
        """Asks that process for it."""

    @property
    def is_broken(self) -> bool:
        """Whether the worker is gone."""
        return self._session.lost.done()


class Supervisor:
    """One instance and its worker processes, one after another, all made by one recipe.

    `failure` says why there is no worker; `is_failing`, that a new one was tried and did not come up. `changed` is
    called when a worker comes or cannot come.
    """

    def __init__(
        self, recipe: WorkerRecipe, runner: BatchRunner, quarantine: Quarantine, changed: Callable[[], None]
    ) -> None:
        self.placement = recipe.placement
        self.instance = PythonInstance(
            recipe.placement.name, recipe.config, runner, quarantine, recipe.services.has_strict_outputs
        )
        self.failure: str | None = None
        self.is_failing = False
        self._recipe = recipe
        self._runner = runner
        self._quarantine = quarantine
        self._changed = changed
        self._watch: WorkerWatch | None = None
        self._backoff = Backoff()
        self._session: WorkerSession | None = None
        self._recovery: asyncio.Task[None] | None = None
        self._is_attached = False
        self._is_stopping = False
        self._lease: WorkerLease | None = None
        self._stays = False  # is not lent any more

    @property
    def is_alive(self) -> bool:
        return self._session is not None

    @property
    def pid(self) -> int | None:
        """The worker's process; None where there is none."""
        return None if self._session is None else self._session.process.pid

    @property
    def devices(self) -> tuple[str, ...]:
        """Those that the worker says it computes on; none where it does not say."""
        return () if self._session is None else tuple(self._session.facts.get("devices", ()))

    async def start(self, session: WorkerSession | None = None) -> None:
        """Brings up the first worker, in a process already begun where one is given. Raises ServingError where it
        fails; no process is left then."""
        await self._bring_up(session or await self._recipe.open_session())
        self._watch = self._recipe.begin_watch()

    def attach(self) -> None:
        """Lets the runner give batches to the instance."""
        if self._session is not None and not self._is_attached and not self.placement.is_passive:
            self._is_attached = True
            self._runner.attach(self.instance)

    def detach(self) -> None:
        """The runner gives no further batch; those that run go on."""
        if self._is_attached:
            self._is_attached = False
            self._runner.detach(self.instance)

    @property
    def recipe(self) -> WorkerRecipe:
        return self._recipe

    @property
    def unfit_reason(self) -> str:
        """Why its worker is better off here than with another process; empty where nothing is known."""
        return "it calls other models" if self._session is not None and self._session.has_called else ""

    @property
    def can_lend(self) -> bool:
        """Whether the worker serves, takes one batch at a time on its main thread, and calls no other model."""
        if self._session is None or self._session.facts.get("is_async") or self._session.has_called:
            return False
        return self._is_attached and self._lease is None and not self._stays

    async def lend(self, number: int) -> WorkerLease | None:
        """For another process, under a number of its own, when it has done what it was given: the runner gives it no
        further batch from before the first await on. None where it has come to be of no use meanwhile."""
        session = self._session
        # Polled, so that the path of every batch has no event to set.
        while not self.instance.is_idle:  # noqa: ASYNC110
            await asyncio.sleep(_LEND_POLL_S)
        if session is None or session is not self._session or self._stays:
            return None
        try:
            lease = self._lease = WorkerLease(session, *session.lend(number))
        except OSError as error:
            log.warning("model instance '%s' could not be leased: %s", self.instance.name, error)
            self.attach()
            return None
        lease.returned.add_done_callback(lambda _: self._on_returned(lease))
        return lease

    def _on_returned(self, lease: WorkerLease) -> None:
        if lease is self._lease:
            self._lease = None
            if not self._is_stopping:
                self.attach()

    async def take_back(self) -> None:
        """Returns when no other process has the worker, nor will."""
        self._stays = True
        lease = self._lease
        if lease is not None:
            if lease.recall is not None:
                lease.recall()
            await asyncio.wait((lease.returned,))

    async def is_ready(self) -> bool:
        return self._session is not None and await self._session.is_ready()

    def set_verbose_level(self, level: int) -> None:
        if self._session is not None:
            self._session.set_verbose_level(level)

    async def stop(self) -> None:
        """Finalizes the model and ends its process; what is still unanswered is answered. Never raises."""
        await self._end(lambda session: session.finalize(self._recipe.options.stop_timeout_s))

    async def abandon(self) -> None:
        """The same where nobody waits for what the worker does: one that executes a batch, behind which `finalize`
        would have to wait, is ended at once."""
        if self.instance.is_executing:
            await self._end(WorkerSession.discard)
        else:
            await self.stop()

    async def _end(self, end: Callable[[WorkerSession], Coroutine[Any, Any, None]]) -> None:
        self._is_stopping = self._stays = True
        try:
            self.detach()
        except Exception:  # nothing may keep the process from being ended
            log.exception("model instance '%s' could not be detached", self.instance.name)
        if self._recovery is not None:
            self._recovery.cancel()
            await asyncio.wait((self._recovery,))
        session, self._session = self._session, None
        if session is not None:
            await end(session)
        self.instance.disconnect()
        self.instance.fail(UnavailableError(f"model instance '{self.instance.name}' was stopped"))
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    async def _bring_up(self, session: WorkerSession) -> None:
        try:
            await session.initialize(self._recipe.settings(), self._recipe.arguments())
        except BaseException:
            await session.discard()
            raise
        is_async = session.facts.get("is_async")
        self.instance.max_concurrency = self._recipe.parameters.max_concurrency if is_async else 1
        self._session = session
        session.serve(self.instance)
        session.lost.add_done_callback(lambda _: self._on_lost(session))
        self._backoff.note_serving()

    async def _bring_up_in_time(self) -> None:
        limit_s = load_timeout_s(self._recipe.config.message, self._recipe.services.load_timeout_s)
        try:
            async with asyncio.timeout(limit_s) as limit:
                await self._bring_up(await self._recipe.open_session())
        except TimeoutError:
            if limit_s is None or not limit.expired():
                raise
            raise took_too_long(limit_s) from None

    def _on_lost(self, session: WorkerSession) -> None:
        if self._is_stopping or session is not self._session:
            return
        self._session = None
        self.failure = "The worker process is gone."
        if self._watch is not None:
            self._watch.set_up(False)
        self.instance.disconnect()
        self.detach()
        self._recovery = asyncio.get_running_loop().create_task(self._recover(session))

    async def _recover(self, session: WorkerSession) -> None:
        await self._report_exit(session)
        while not await self._try_again():
            pass
        log.info("model instance '%s' serves again", self.instance.name)
        self.attach()
        self._changed()

    async def _report_exit(self, session: WorkerSession) -> None:
        name = self.instance.name
        try:
            reason, report = await session.report()
        except BaseException:
            await session.discard()
            raise
        session.close()
        self.failure = report
        self._count_failure(reason, report)
        log.error("model instance '%s' lost its worker. %s", name, report)
        kills = self._quarantine.blame(self.instance.running)
        if kills >= KILLS_BEFORE_REFUSAL:
            log.error("a request to '%s' killed %d workers; the same inputs are refused from now on", name, kills)
        text = f"Failed to process the request(s) for model instance '{name}', message: Stub process '{name}' is not "
        self.instance.fail(InternalError(f"{text}healthy. {report}"))

    async def _try_again(self) -> bool:
        """One attempt at a new worker, after the delay that is due."""
        name = self.instance.name
        delay_s = self._backoff.next_delay_s()
        if delay_s:
            log.warning("model instance '%s' gets a new worker in %g s", name, delay_s)
            await asyncio.sleep(delay_s)
        log.info("model instance '%s' is being restarted", name)
        try:
            await self._bring_up_in_time()
        except Exception as error:
            if not isinstance(error, ServingError):
                log.exception("the restart of model instance '%s' failed", name)
            self.failure, self.is_failing = str(error), True
            self._count_failure(NOT_STARTED, self.failure)
            log.error("model instance '%s' could not be restarted: %s", name, self.failure)
            self._changed()
            return False
        self.failure, self.is_failing = None, False
        if self._watch is not None:
            self._watch.count_restart()
            self._watch.set_up(True)
        return True

    def _count_failure(self, reason: str, text: str) -> None:
        if self._watch is not None:
            self._watch.count_failure(reason, text)
