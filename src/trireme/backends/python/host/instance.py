"""One execution slot backed by a worker process: batches out, results and responses back."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

from trireme.backends.python.channel import messages
from trireme.backends.python.host.calls import BlsCalls
from trireme.backends.python.host.link import HostLink
from trireme.backends.python.host.quarantine import Quarantine
from trireme.backends.python.host.tensor_messages import ErrorMessage, error_of, give_back, lend, take_back
from trireme.backends.python.output_check import OutputCheck
from trireme.config.model_config import ModelConfig
from trireme.core.batch import Batch, BatchTiming
from trireme.core.errors import InternalError, ServingError, UnavailableError
from trireme.core.ports import BatchRunner
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor

log = logging.getLogger(__name__)

_now_ns: Final = time.monotonic_ns
_NO_TIME: Final = BatchTiming(0, 0, 0)
_LATER: Final = InferenceResponse.final_mark()  # stands for the answer of a request that is to run again


class PythonInstance:
    """Implements `core.ports.Instance`. It outlives its worker processes: `connect` gives it the link to a new one,
    `disconnect` takes it away, and `fail` answers what a dead one left behind."""

    def __init__(
        self,
        name: str,
        config: ModelConfig,
        runner: BatchRunner,
        quarantine: Quarantine,
        has_strict_outputs: bool = False,
        first_number: int = 1,
    ) -> None:
        self.name = name
        self.max_concurrency = 1
        self._runner = runner
        self._quarantine = quarantine
        self._model_name = config.name
        self._max_batch_size = config.max_batch_size
        self._is_decoupled = config.is_decoupled
        # A request that runs again is to find its inputs as they were, whatever the model wrote into them.
        self._can_hand_over = config.sequence_batching is None or not config.sequence_batching.is_iterative
        # Where a sequence is known by its place in the batch, nothing may be taken out of one.
        self._can_refuse = config.sequence_batching is None or config.sequence_batching.oldest is not None
        # With the states of sequences, which the scheduler keeps from clients that did not ask for them.
        states = config.sequence_batching.states if config.sequence_batching is not None else ()
        self._outputs = dict.fromkeys([*config.outputs, *[state.output_name for state in states]])
        self._output_names = tuple(self._outputs)
        self._check = OutputCheck(config, [state.output_name for state in states], has_strict_outputs)
        self._known_forms = self._check.known
        self._link: HostLink | None = None
        self._calls: BlsCalls | None = None
        # Of batches and of requests: no two processes that a worker serves in turn use the same.
        self._next_batch = first_number
        self._next_key = first_number
        self._batches: dict[int, _Running] = {}
        self._requests: dict[int, InferenceRequest] = {}  # by key, until the final response
        self._held: dict[int, InferenceResponse] = {}  # single responses that wait for their final mark
        self._watched: dict[int, bytes] = {}  # fingerprints of requests under suspicion, by key

    def execute(self, batch: Batch) -> None:
        link = self._link
        if link is None:
            self._answer_all(batch, UnavailableError(f"model instance '{self.name}' has no worker process"))
            return
        if batch.size > self._max_batch_size > 0:
            text = f"batch size {batch.size} for '{self._model_name}', max allowed is {self._max_batch_size}"
            self._answer_all(batch, InternalError(text))
            return
        requests, refused = batch.requests, None
        if self._quarantine.suspects and self._can_refuse:
            requests, refused = self._admit(batch)
            if not requests:
                self._runner.finish(self, batch, refused or (), _NO_TIME)
                return
        first_key = self._next_key
        try:
            encoded = self._encode(requests, first_key, link)
        except Exception as error:
            self._forget_suspects()
            failure = InternalError(f"unable to hand the batch to '{self.name}': {error}")
            responses: list[InferenceResponse | None] = [InferenceResponse.of_error(failure) for _ in requests]
            self._runner.finish(self, batch, _merged(responses, refused), _NO_TIME)
            return
        key = first_key
        pending = self._requests
        for request in requests:
            pending[key] = request
            if request.credits:
                link.send((messages.CREDITS, key, request.credits))
                request.on_credit = partial(self._send_credit, link, key)
            key += 1
        self._next_key = key
        number = self._next_batch
        self._next_batch = number + 1
        self._batches[number] = _Running(batch, range(first_key, key), refused)
        link.send((messages.EXECUTE, number, encoded))

    def cancel(self, request: InferenceRequest) -> None:
        if self._link is None or self._calls is None:
            return
        for key, candidate in self._requests.items():
            if candidate is request:
                self._link.send((messages.CANCEL, key))
                self._calls.cancel_children(request)
                return

    def request_of(self, key: int) -> InferenceRequest | None:
        """The running request that the worker knows by this number."""
        return self._requests.get(key)

    @property
    def running(self) -> Sequence[InferenceRequest]:
        """The requests whose final response is still to come."""
        return list(self._requests.values())

    @property
    def is_idle(self) -> bool:
        return not self._batches and not self._requests

    @property
    def is_executing(self) -> bool:
        """Whether the worker has a batch."""
        return bool(self._batches)

    @property
    def batch_count(self) -> int:
        """Grows with every batch that a worker gets."""
        return self._next_batch

    @property
    def link(self) -> HostLink | None:
        """To the worker that serves now; None while there is none."""
        return self._link

    def connect(self, link: HostLink, calls: BlsCalls) -> None:
        """From now on batches go to the worker behind the link; `calls` are those that the worker makes."""
        self._link = link
        self._calls = calls

    def disconnect(self) -> None:
        """There is no worker any more; what it had stays open until `fail`."""
        self._link = None
        self._calls = None

    def fail(self, error: ServingError) -> None:
        """Ends every batch and request that a dead worker had."""
        batches, self._batches = self._batches, {}
        left, self._requests = self._requests, {}
        held, self._held = self._held, {}
        self._forget_suspects()
        now_ns = _now_ns()
        for running in batches.values():
            responses = [_last_word(left.pop(key, None), held.get(key), error) for key in running.keys]
            in_model = BatchTiming(0, now_ns - running.batch.start_ns, 0)  # where the worker was lost
            self._runner.finish(self, running.batch, _merged(responses, running.refused), in_model)
        for key, request in left.items():
            self._runner.respond(request, held.get(key) or InferenceResponse.of_error(error))

    def on_results(self, message: tuple[Any, ...]) -> None:
        """A batch was executed (RESULTS)."""
        _, number, answers, error, input_ns, infer_ns, output_ns = message
        running = self._batches.pop(number)
        requests = self._requests
        responses: list[InferenceResponse | None]
        if error is not None:
            responses = self._failures(running.keys, error)
        else:
            if len(answers) != len(running.keys):
                raise ValueError(f"{len(answers)} answers to {len(running.keys)} requests")
            responses = []
            for key, answer in zip(running.keys, answers):  # noqa: B905 (checked above, and this is every request's path)
                request = requests.pop(key, None) if answer is not None else None
                responses.append(None if request is None else self._response(request, answer))
        if self._watched:
            self._clear_suspects(running.keys, is_success=error is None)
        # What is neither the model's nor the output's time is the way there: encoding, the socket, waking up.
        other_ns = _now_ns() - running.start_ns - infer_ns - output_ns
        timing = BatchTiming(other_ns if other_ns > input_ns else input_ns, infer_ns, output_ns)
        if running.refused is not None:
            responses = _merged(responses, running.refused)
        self._runner.finish(self, running.batch, responses, timing)

    def on_response(self, message: tuple[Any, ...]) -> None:
        """One response ahead of, or after, the end of its batch (RESPONSE)."""
        _, key, answer, is_final = message
        request = self._requests.get(key)
        if request is None:
            if answer is not None and self._link is not None:
                give_back(answer[0], self._link)
            return
        response = InferenceResponse.final_mark() if answer is None else self._response(request, answer)
        response.is_final = is_final
        if not self._is_decoupled:
            if not is_final:
                self._held[key] = response
                return
            response = self._held.pop(key, response) if answer is None else response
            response.is_final = True
        if is_final:
            del self._requests[key]
            if self._watched:
                self._clear_suspects((key,), is_success=True)
        elif self._watched and key in self._watched:
            self._quarantine.let_go(self._watched[key])  # a stream may be long
        self._runner.respond(request, response)

    def on_measured(self, message: tuple[Any, ...]) -> None:
        """The model tells of the time of a request (MEASURED), which may be one of a process that has the worker."""
        request = self._requests.get(message[1])
        if request is not None or message[1] >> messages.LEASE_BITS:
            self._runner.measured(request, message[2])

    def on_reschedule(self, message: tuple[Any, ...]) -> None:
        """The model gives a request back (RESCHEDULE)."""
        request = self._requests.pop(message[1], None)
        if request is not None:
            self._runner.reschedule(request)

    def _send_credit(self, link: HostLink, key: int) -> None:
        """One more response may come, where the worker still has the request."""
        if key in self._requests and link is self._link:
            link.send((messages.CREDITS, key, 1))

    def _encode(self, requests: list[InferenceRequest], key: int, link: HostLink) -> list[tuple[Any, ...]]:
        """The requests for a message, under the keys that follow `key`."""
        can_hand_over, default_outputs = self._can_hand_over, self._output_names
        encoded: list[tuple[Any, ...]] = []
        try:
            for request in requests:
                encoded.append(
                    (
                        key,
                        request.id,
                        lend(request.inputs.values(), link, can_hand_over),
                        request.requested_outputs or default_outputs,
                        request.correlation_id,
                        request.flags,
                        request.timeout_us,
                        request.parameters,
                        None if request.trace is None else request.trace.carrier,
                    )
                )
                key += 1
        except Exception:
            for entry in encoded:
                take_back(entry[2], link)
            raise
        return encoded

    def _response(self, request: InferenceRequest, answer: tuple[Any, ...]) -> InferenceResponse:
        tensors, error, parameters = answer
        if error is not None:
            if tensors and self._link is not None:
                give_back(tensors, self._link)
            return InferenceResponse([], error_of(error), parameters or None)
        wanted = request.requested_outputs or self._outputs
        outputs: list[Tensor] = []
        problem: ServingError | None = None
        for name, datatype, shape, data in tensors:
            if data is None:  # not asked for, or not there to be asked for
                if name not in self._outputs:
                    problem = problem or self._check.examine(name, datatype, shape)
                continue
            if (name, datatype, tuple(shape)) not in self._known_forms:
                problem = problem or self._check.examine(name, datatype, shape)
            if type(data) is tuple:
                assert self._link is not None
                tensor: Tensor = self._link.borrow(name, datatype, shape, data)
            else:
                tensor = Tensor(name, datatype, shape, data)
            if name in wanted and name in self._outputs:
                outputs.append(tensor)
        if problem is not None:
            return InferenceResponse.of_error(problem)
        return InferenceResponse(outputs, None, parameters or None)

    def _failures(self, keys: Iterable[int], error: ErrorMessage) -> list[InferenceResponse | None]:
        """The batch's error for each request that has no response yet; one that was sent before the error counts."""
        kind, text = error
        failure = error_of((kind, f"Failed to process the request(s) for model '{self.name}', message: {text}"))
        log.error("%s", failure.message)
        responses: list[InferenceResponse | None] = []
        for key in keys:
            responses.append(_last_word(self._requests.pop(key, None), self._held.pop(key, None), failure))
        return responses

    def _answer_all(self, batch: Batch, error: ServingError) -> None:
        self._runner.finish(self, batch, [InferenceResponse.of_error(error) for _ in batch.requests], _NO_TIME)

    def _admit(self, batch: Batch) -> tuple[list[InferenceRequest], list[InferenceResponse | None] | None]:
        """Splits off requests that are refused because they killed workers, and where one must run alone puts off the
        others; watches those that remain."""
        admitted: list[InferenceRequest] = []
        refused: list[InferenceResponse | None] = []
        key = self._next_key
        alone = self._quarantine.last_chance(batch.requests)
        for request in batch.requests:
            if alone is not None and request is not alone:
                self._runner.reschedule(request)
                refused.append(_LATER)
                continue
            fingerprint, refusal = self._quarantine.examine(request)
            if fingerprint is not None and refusal is None:
                refusal = self._quarantine.begin(fingerprint)
            refused.append(None if refusal is None else InferenceResponse.of_error(refusal))
            if refusal is None:
                admitted.append(request)
                if fingerprint is not None:
                    self._watched[key] = fingerprint
                key += 1
        return admitted, refused if len(admitted) < len(refused) else None

    def _clear_suspects(self, keys: Iterable[int], is_success: bool) -> None:
        """Clears requests that ended with their worker alive; those still open stay watched."""
        for key in keys:
            if key not in self._requests:
                fingerprint = self._watched.pop(key, None)
                if fingerprint is not None:
                    self._quarantine.end(fingerprint)
                    if is_success:
                        self._quarantine.clear(fingerprint)

    def _forget_suspects(self) -> None:
        for fingerprint in self._watched.values():
            self._quarantine.end(fingerprint)
        self._watched.clear()


class _Running:
    """A batch that the worker has."""

    __slots__ = ("batch", "keys", "refused", "start_ns")

    def __init__(self, batch: Batch, keys: range, refused: list[InferenceResponse | None] | None) -> None:
        self.batch = batch
        self.keys = keys
        self.refused = refused  # None where every request was sent; else what stands at each place not sent
        self.start_ns = _now_ns()


def _merged(
    responses: list[InferenceResponse | None], refused: list[InferenceResponse | None] | None
) -> list[InferenceResponse | None]:
    """The responses beside the batch's requests, refusals in their places."""
    if refused is None:
        return responses
    sent = iter(responses)
    return [next(sent) if other is None else None if other is _LATER else other for other in refused]


def _last_word(
    request: InferenceRequest | None, held: InferenceResponse | None, error: ServingError
) -> InferenceResponse | None:
    """What a request is answered that its worker gives nothing more; None where it had its final response."""
    if request is None:
        return None
    if held is not None:
        held.is_final = True
        return held
    return InferenceResponse.of_error(error)
