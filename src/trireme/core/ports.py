"""The interfaces at which rooms meet without importing each other.

Everything here is called on the event loop's thread, and nothing here blocks it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from trireme.core.batch import Batch, BatchTiming
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse

Durations = Mapping[str, tuple[int, int]]
"""What was measured, by name: how often, and nanoseconds altogether; `..._tokens` are counts without a time."""


class Instance(Protocol):
    """One execution slot of a loaded model: a worker process, or a function in this one."""

    name: str
    """`<group>_<index>`, as logs and errors name it."""

    max_concurrency: int
    """How many batches it takes at once; 1 unless the model's execute is a coroutine."""

    def execute(self, batch: Batch) -> None:
        """Starts the batch and returns at once; never raises. The instance owns the batch until it calls the
        runner's `finish` for it, which it does exactly once, also when it dies. It may call `finish` before
        `execute` returns."""

    def cancel(self, request: InferenceRequest) -> None:
        """Passes on that nobody waits for this request of a running batch; it is answered and finished as usual."""


class BatchRunner(Protocol):
    """What an instance reports to: the scheduler's side of an execution."""

    def attach(self, instance: Instance) -> None:
        """From now on the instance takes batches."""

    async def drain(self, instance: Instance) -> None:
        """Before an instance that could go on is detached: from now on it begins nothing that binds further requests to
        it, and this returns when nothing does any longer. That may be much later, where clients' sequences go on."""

    def detach(self, instance: Instance) -> None:
        """From now on the instance takes none; what it had was or will be finished by it."""

    def respond(self, request: InferenceRequest, response: InferenceResponse) -> None:
        """One response of a running request, ahead of the end of its batch (decoupled models, response senders).
        Passes the response on to the client. Not called again for a request after its final response."""

    def finish(
        self,
        instance: Instance,
        batch: Batch,
        responses: Sequence[InferenceResponse | None],
        timing: BatchTiming,
    ) -> None:
        """The execution is over and the instance is free. `responses` stands beside `batch.requests`; None where
        the request was answered, or will be, through `respond`. Responses are not used by the instance afterwards."""

    def measured(self, request: InferenceRequest | None, durations: Durations) -> None:
        """What the model has measured of a running request, by name: how often, and nanoseconds altogether. For
        statistics and the request's trace; None where another process has the request."""

    def reschedule(self, request: InferenceRequest) -> None:
        """The model gave the request back to be executed again in a later batch; called before `finish`, with None
        in its place there."""


class Backend(Protocol):
    """The execution of one version of one model, from load to unload."""

    async def complete_config(self) -> Any:
        """Auto-complete: returns the configuration message as the model completes it (the given one where it does
        not). Called once, before `start`; raises ServingError where the model fails."""

    async def start(self, config: Any, runner: BatchRunner) -> None:
        """Brings up every instance of the final configuration and attaches it to the runner; returns when all can
        serve, or raises ServingError after undoing what it began."""

    async def stop(self) -> None:
        """Finalizes and ends every instance; called once the runner has no batch out. Never raises."""

    async def abandon(self) -> None:
        """Ends every instance of a load that was given up, those that have a batch out without waiting for it. Never
        raises. A backend of another package may lack it: `stop` is called in its place."""

    async def is_ready(self) -> bool:
        """Whether the instances live and the model itself, where it can say so, is willing to serve."""

    async def resize(self, config: Any) -> None:
        """Adds and removes instances until they match the changed instance groups, others keep serving."""


class Scheduler(Protocol):
    """Decides when and with whom a request runs; is also the runner that instances report to."""

    def enqueue(self, request: InferenceRequest) -> None:
        """Takes the request, which will be answered through `request.respond`; raises ServingError to refuse it."""

    async def stop(self) -> None:
        """Takes no further request and returns when every request it took has been answered."""

    async def idle(self) -> None:
        """Returns when `inflight_count` is 0, at once where it is. The next request may have come by then."""

    @property
    def pending_count(self) -> int:
        """Requests taken and not yet executing."""

    @property
    def inflight_count(self) -> int:
        """Requests taken and not yet answered."""


class InferencePort(Protocol):
    """A way to run a request from below: an ensemble's step, or a call from inside a model."""

    def infer(self, request: InferenceRequest) -> None:
        """Resolves, validates and enqueues; raises ServingError where the request is refused before that, and
        answers through `request.respond` otherwise."""


class ModelControlPort(Protocol):
    """Model control from inside a model."""

    async def load(self, name: str, config: str | None, files: Mapping[str, bytes]) -> None:
        """Loads or reloads; `config` is JSON, `files` maps `file:<path>` to content. Raises ServingError."""

    async def unload(self, name: str, unload_dependents: bool) -> None:
        """Unloads; raises ServingError."""

    async def is_model_ready(self, name: str, version: str) -> bool:
        """Whether that version, or the newest for "", can serve; raises ServingError for a malformed version."""


class CustomMetricsPort(Protocol):
    """Metrics that a user's model declares. Families and metrics are known by handles; every method raises
    ServingError with the reason where an operation does not fit the kind."""

    def create_family(self, owner: str, name: str, description: str, kind: str) -> int:
        """A handle on the family (`counter`, `gauge`, `histogram`); the same name and kind is the same family."""

    def create_metric(self, family: int, labels: Mapping[str, str], buckets: Sequence[float] | None) -> int:
        """A handle on one series of the family."""

    def update(self, metric: int, operation: str, value: Any) -> None:
        """`increment`, `set` or `observe` with a number, `observe_counts` with how many came into each bucket and
        their sum."""

    def value(self, metric: int) -> float:
        """The present value of a counter or gauge."""

    def delete_metric(self, metric: int) -> None:
        """Gives the handle back; the series goes when no handle is left."""

    def delete_family(self, family: int) -> None:
        """Gives the handle back; the family goes when no handle is left."""

    def release(self, owner: str) -> None:
        """Gives back every handle that this owner (an instance) still holds."""


class WorkerWatch(Protocol):
    """What is told of one instance's worker processes, from the first of them to the end of the instance."""

    def set_up(self, is_up: bool) -> None:
        """Its process serves, or does not."""

    def count_restart(self) -> None:
        """A process that was lost has been replaced by one that serves."""

    def count_failure(self, reason: str, text: str = "") -> None:
        """A process was lost or could not be started; `reason` is one short word, `text` says all that is known."""

    def close(self) -> None:
        """The instance exists no longer; nothing is told afterwards."""


class WorkerHealthPort(Protocol):
    """Who wants to know how worker processes fare."""

    def watch(self, model: str, version: int, instance: str) -> WorkerWatch:
        """Begins with an instance whose first process serves."""
