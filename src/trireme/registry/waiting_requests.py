"""The requests that wait for one model to load: in order, not too many, not too long."""

from __future__ import annotations

import asyncio
import logging

from trireme.config.model_config import ModelConfig
from trireme.core.errors import CancelledError, InternalError, ServingError, UnavailableError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.observe.stats import ModelStats
from trireme.registry.model import Model, ModelInference
from trireme.registry.options import OnDemandOptions
from trireme.registry.repository.repositories import ModelId
from trireme.registry.served_models import ServedModels

log = logging.getLogger(__name__)


class WaitingRequests:
    """Implements `Scheduler` for the placeholders of a model: front ends hold one of those until the model is there.

    All requests wait equally long, so the first of them is always the first whose time is over.
    """

    def __init__(self, name: str, config: ModelConfig, options: OnDemandOptions) -> None:
        self.name = name
        self._config = config
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._deadlines: dict[InferenceRequest, float] = {}  # in the order in which they came
        self._placeholders: dict[str, Model] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._watchers: set[asyncio.Future[None]] = set()
        self._emptied = asyncio.Event()

    def placeholder(self, version: str) -> Model:
        """What a front end gets instead of the model until that is loaded."""
        model = self._placeholders.get(version)
        if model is None:
            model = Model(ModelId("", self.name), 0, self._config, self, ModelStats(self.name, 0))
            model.is_placeholder = True
            model.version_text = version
            self._placeholders[version] = model
        return model

    def enqueue(self, request: InferenceRequest) -> None:
        """Keeps the request; raises ServingError where too many wait already."""
        if request.is_cancelled:
            request.respond(InferenceResponse.of_error(CancelledError("")))
            return
        self._refuse_if_full(request.id)
        self._emptied.clear()
        self._deadlines[request] = self._loop.time() + self._options.load_timeout_s
        request.on_cancel = self._cancel
        if self._timer is None:
            self._set_timer()

    async def ended(self, timeout_s: float) -> None:
        """Returns when the model is there, raises ServingError when it will not be, or after the time. Who waits here
        counts as a request."""
        self._refuse_if_full("")
        watcher = self._loop.create_future()
        self._watchers.add(watcher)
        try:
            await asyncio.wait_for(watcher, timeout_s)
        except TimeoutError:
            raise self._timeout() from None
        finally:
            self._watchers.discard(watcher)

    async def stop(self) -> None:
        """Answers whoever still waits."""
        self.reject(UnavailableError("Server exiting"))

    async def idle(self) -> None:
        """Returns when no request waits any more."""
        while self._deadlines:
            await self._emptied.wait()

    @property
    def pending_count(self) -> int:
        """Requests that wait."""
        return len(self._deadlines) + len(self._watchers)

    @property
    def inflight_count(self) -> int:
        """Requests that wait."""
        return self.pending_count

    def release(self, models: ServedModels, inference: ModelInference) -> None:
        """The model is there: hands the requests on in their order, to be checked and run as if they came now."""
        for request in self._take_all():
            try:
                inference.infer_on(models.find(request.model_name, request.model_version), request)
            except Exception as error:
                if not isinstance(error, ServingError):
                    log.exception("a request that waited for model '%s' failed", self.name)
                    error = InternalError(f"{type(error).__name__}: {error}")
                _answer(request, error)
        for watcher in self._watchers:
            if not watcher.done():
                watcher.set_result(None)

    def reject(self, error: ServingError) -> None:
        """The model will not be there: answers everybody with the reason."""
        for request in self._take_all():
            _answer(request, error.for_request(request.id))
        for watcher in self._watchers:
            if not watcher.done():
                watcher.set_exception(error)

    def _refuse_if_full(self, request_id: str) -> None:
        if self.pending_count >= self._options.queue_size:
            raise UnavailableError(
                f"model '{self.name}' is being loaded and {self.pending_count} requests wait for it already, as many "
                "as --on-demand-queue-size allows"
            ).for_request(request_id)

    def _timeout(self) -> UnavailableError:
        return UnavailableError(
            f"model '{self.name}' is still being loaded after {self._options.load_timeout_s:g} seconds, as long as "
            "--on-demand-load-timeout lets a request wait; try again later"
        )

    def _take_all(self) -> list[InferenceRequest]:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        requests, self._deadlines = list(self._deadlines), {}
        self._emptied.set()
        for request in requests:
            request.on_cancel = None
        return requests

    def _cancel(self, request: InferenceRequest) -> None:
        if self._deadlines.pop(request, None) is not None:
            self._note_left()
            request.on_cancel = None
            _answer(request, CancelledError(""))

    def _set_timer(self) -> None:
        first = next(iter(self._deadlines.values()), None)
        self._timer = None if first is None else self._loop.call_at(first, self._expire)

    def _expire(self) -> None:
        now = self._loop.time()
        expired = [request for request, deadline in self._deadlines.items() if deadline <= now]
        for request in expired:
            self._deadlines.pop(request, None)
            request.on_cancel = None
            _answer(request, self._timeout().for_request(request.id))
        self._note_left()
        self._set_timer()

    def _note_left(self) -> None:
        if not self._deadlines:
            self._emptied.set()


def _answer(request: InferenceRequest, error: ServingError) -> None:
    try:
        request.respond(InferenceResponse.of_error(error))
    except Exception:  # one client's trouble is not the next one's
        log.exception("a request could not be answered")
