"""The leases of one model: which front-end process has how many of its workers, and what they have counted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Final

from trireme.app.leases.lease_term import LeaseTerm
from trireme.app.leases.shared_counts import SharedCounts
from trireme.app.leases.shares import shares_of
from trireme.backends.python.host.backend import PythonBackend
from trireme.backends.python.host.supervisor import Supervisor, WorkerLease
from trireme.frontends.processes.front_process import FrontProcess
from trireme.registry.model import Model

log = logging.getLogger(__name__)

_LEAST_REQUESTS: Final = 50
"""Of a model that gets fewer between two looks, all workers stay here."""
_LEAST_OF_PROCESS: Final = 10
"""A process that reads fewer gets none."""
_MOST_EXECUTION_NS: Final = 5_000_000
"""Executions that take longer leave the server process the time to batch for all workers from one queue."""
_QUIET_LOOKS: Final = 8
"""So often in a row a model is not busy before its workers come back."""
_KEPT_SHARE: Final = 0.5
"""Of what was demanded before, against one look that is like no other."""
_WORTH_A_MOVE: Final = 2
"""Workers; for fewer nothing is moved that is in use, unless a process has none."""


class ModelLeases:
    """Used on the event loop's thread."""

    def __init__(self, model: Model, backend: PythonBackend, numbers: Iterator[int]) -> None:
        self.unfit_reason = ""
        """Why the model is not to be leased again."""
        self._model = model
        self._backend = backend
        self._numbers = numbers
        self._terms: dict[FrontProcess, LeaseTerm] = {}
        self._ending: list[LeaseTerm] = []  # whose last workers are on their way back
        self._demands: dict[FrontProcess, float] = {}
        self._own_demand = 0.0
        self._before = self._counted()
        self._quiet_count = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._count_here = model.stats.pending_count
        model.stats.bring_in = self.bring_in
        model.stats.pending_count = self._pending_count
        model.stats.inflight_elsewhere = self._inflight_count

    @property
    def lease_counts(self) -> dict[FrontProcess, int]:
        """How many workers each process has."""
        return {process: len(term.leases) for process, term in self._terms.items()}

    def has(self, term: int) -> bool:
        """Whether it is one of the model's."""
        return any(mine.number == term for mine in self._all_terms)

    def bring_in(self) -> None:
        """Adds what front-end processes have counted to the model's statistics."""
        for term in self._all_terms:
            term.counts.bring_into(self._model.stats)

    def share(self, processes: list[FrontProcess]) -> None:
        """Gives every process as many workers as it has use for."""
        self.bring_in()
        is_busy = self._look_at_load(processes)
        for supervisor in self._backend.supervisors:
            if supervisor.unfit_reason:
                self.unfit_reason = supervisor.unfit_reason
        self._quiet_count = 0 if is_busy else self._quiet_count + 1
        if self.unfit_reason:
            self.end(self.unfit_reason)
        elif self._backend.quarantine.suspects:
            self.end("requests are suspected of killing its workers")
        elif self._quiet_count >= _QUIET_LOOKS:
            self.end("it is not busy")
        elif is_busy:
            self._move(processes)

    def _move(self, processes: list[FrontProcess]) -> None:
        demands = [self._demands[process] for process in processes]
        count = sum(1 for supervisor in self._backend.supervisors if supervisor.is_alive)
        wanted = dict(zip(processes, shares_of(count, demands, self._own_demand), strict=True))
        has_poor = any(share and process not in self._terms for process, share in wanted.items())
        for process in list(self._terms):
            self._recall_more_than(process, wanted.get(process, 0), 1 if has_poor else _WORTH_A_MOVE)
        for process, share in wanted.items():
            self._lend_up_to(process, share)

    def end(self, reason: str) -> None:
        """No request is begun by another process from this moment on, and the workers come back."""
        for process in list(self._terms):
            self._terms[process].counts.shut()
            self._recall_more_than(process, 0)
            log.debug("workers of model '%s' are recalled: %s", self._model.name, reason)

    def rest(self, reason: str) -> None:
        """The same in place of `share`: what is counted meanwhile is no load to share later."""
        self.end(reason)
        self.bring_in()
        self._before = self._counted()

    def _counted(self) -> tuple[int, int, int]:
        """Requests that were answered, executions, and the time that these took."""
        stats = self._model.stats
        batches = stats.batches.values()
        return stats.success_count, sum(totals[0] for totals in batches), sum(totals[2] for totals in batches)

    def _look_at_load(self, processes: list[FrontProcess]) -> bool:
        """Whether the model is busy, with executions so short that one queue for all is what holds it up."""
        before, self._before = self._before, self._counted()
        requests, ran, infer_ns = (now - then for then, now in zip(before, self._before, strict=True))
        own = float(requests)
        demands: dict[FrontProcess, float] = {}
        for process in processes:
            demand = process.take_demand(self._model.name)
            term = self._terms.get(process)
            if term is not None:
                demand += term.take_demand()
            own -= demand
            kept = self._demands.get(process, float(demand))
            demands[process] = kept + (demand - kept) * _KEPT_SHARE if demand >= _LEAST_OF_PROCESS else 0.0
        self._demands = demands
        self._own_demand += (max(0.0, own) - self._own_demand) * _KEPT_SHARE
        return requests >= _LEAST_REQUESTS and infer_ns < _MOST_EXECUTION_NS * max(1, ran)

    def _recall_more_than(self, process: FrontProcess, share: int, least_count: int = 1) -> None:
        term = self._terms[process]
        if share and len(term.leases) - share < least_count:
            return
        for number in term.beyond(share):
            term.recall(process, number)
        self._part_with_empty()

    def _lend_up_to(self, process: FrontProcess, share: int) -> None:
        term = self._terms.get(process)
        missing = share - (0 if term is None else len(term.leases))
        if missing <= 0 or (term is not None and missing < _WORTH_A_MOVE):
            return
        lendable = [supervisor for supervisor in self._backend.supervisors if supervisor.can_lend]
        for supervisor in lendable[1:][:missing]:  # one stays
            if term is None:
                term = self._terms[process] = LeaseTerm(next(self._numbers), SharedCounts.create())
            number = next(self._numbers)
            term.leases[number] = supervisor
            term.out_count += 1
            supervisor.detach()
            task = asyncio.get_running_loop().create_task(self._lend(process, term, number, supervisor))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _lend(self, process: FrontProcess, term: LeaseTerm, number: int, supervisor: Supervisor) -> None:
        lease = await supervisor.lend(number)
        if lease is None:
            term.leases.pop(number, None)
            term.out_count -= 1
            self._part_with_empty()
            return
        lease.recall = lambda: self._recall(process, term, number)
        lease.returned.add_done_callback(lambda _: self._on_returned(process, term, number, lease))
        model, recipe = self._model, supervisor.recipe
        facts = (
            term.number,
            model.version,
            model.config.message.SerializeToString(),
            recipe.services.has_strict_outputs,
            supervisor.instance.name,
        )
        sock, side = lease.sockets
        with sock, side:  # a worker whose sockets nobody has comes back at once
            if number not in term.leases:
                return
            try:
                process.lend(number, facts, [sock.fileno(), side.fileno(), term.counts.fd])
                term.note_handed_over(number)
            except OSError as error:  # it does not keep up, or is gone
                log.warning("a worker of model '%s' could not be leased: %s", model.name, error)

    def _recall(self, process: FrontProcess, term: LeaseTerm, number: int) -> None:
        term.recall(process, number)
        self._part_with_empty()

    def _on_returned(self, process: FrontProcess, term: LeaseTerm, number: int, lease: WorkerLease) -> None:
        term.recall(process, number)  # of a worker that is gone the process has still to forget
        term.out_count -= 1
        if lease.is_broken:
            self.unfit_reason = "a worker died while it was leased"
        self._part_with_empty()

    def _part_with_empty(self) -> None:
        """A term that has lost its last worker gets no other."""
        for process in [process for process, term in self._terms.items() if not term.leases]:
            term = self._terms.pop(process)
            term.counts.shut()
            self._ending.append(term)
        for term in [term for term in self._ending if not term.out_count]:
            term.counts.bring_into(self._model.stats)
            term.counts.close()
            self._ending.remove(term)

    def _pending_count(self) -> int:
        return self._count_here() + sum(term.counts.pending_count for term in self._all_terms)

    def _inflight_count(self) -> int:
        return sum(term.counts.inflight_count for term in self._all_terms)

    @property
    def _all_terms(self) -> list[LeaseTerm]:
        return [*self._terms.values(), *self._ending]
