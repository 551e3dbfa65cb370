"""The server's part of a test: answers what a model asks, in the same thread, and collects what it says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trireme.backends.python.channel import messages
from trireme.backends.python.channel.arena import Arena, Attachments
from trireme.backends.python.worker.worker import Worker
from trireme.core.errors import PROMPT_TOO_LONG, ErrorKind, PromptTooLongError, ServingError
from trireme.core.tensor import Tensor
from trireme.testing.metrics import Metrics

if TYPE_CHECKING:
    import asyncio

Arrays = Mapping[str, Any]
BlsFunction = Callable[[dict[str, NDArray[Any]]], Arrays | Iterable[Arrays]]

_LEVELS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "V": "VERBOSE"}
_INTERNAL = int(ErrorKind.INTERNAL)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line of the model's through `pb_utils.Logger`."""

    level: str
    """INFO, WARNING, ERROR or VERBOSE."""
    file: str
    line: int
    message: str


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call of the model to another."""

    model_name: str
    model_version: int
    """-1 is the newest."""
    inputs: dict[str, NDArray[Any]]
    requested_outputs: tuple[str, ...]
    parameters: dict[str, Any]


class LocalServer:
    """The worker's channel, in whose `send` everything is answered before it returns."""

    def __init__(self, worker: Worker, bls: Mapping[str, BlsFunction], timeout_s: float) -> None:
        self.arena: Arena | None = None
        self.attachments: Attachments | None = None
        self.server_arena: Arena | None = None
        self.server_attachments: Attachments | None = None
        self.instance_name = ""
        self.output_names: tuple[str, ...] = ()
        self.facts: dict[str, Any] = {}
        self.logs: list[LogEntry] = []
        self.calls: list[ModelCall] = []
        self.controls: list[tuple[str, tuple[Any, ...]]] = []
        self.metrics = Metrics()
        self._worker = worker
        self._bls = bls
        self._timeout_s = timeout_s
        self._changed = threading.Condition()
        self._reply: tuple[Any, ...] | None = None
        self._answers: dict[int, list[tuple[Any, ...]]] = {}
        self._open: set[int] = set()
        self._keys: list[int] = []
        self._rescheduled: set[int] = set()
        self._exception: BaseException | None = None
        self._runner: asyncio.Runner | None = None
        worker.on_exception = self._keep_exception

    def ask(self, message: tuple[Any, ...]) -> tuple[Any, ...]:
        """The worker's reply to a message; raises ServingError where the model fails."""
        self._reply = self._exception = None
        self._worker.handle(message)
        reply = self._reply
        assert reply is not None
        if reply[0] == messages.FAILED:
            raise ServingError(reply[2], ErrorKind(reply[1])) from self._exception
        return reply

    def execute(self, forms: list[tuple[Any, ...]]) -> None:
        """Runs a batch and returns when every request has its final response, or is to run again."""
        self._keys = [form[0] for form in forms]
        self._open = set(self._keys)
        for key in self._keys:
            self._answers.setdefault(key, [])
        if self._worker.is_async:
            self._execute_async(forms)
        else:
            self._worker.handle((messages.EXECUTE, 1, forms))
        self.wait_until(lambda: not self._open)

    def take_answers(self, key: int) -> list[tuple[Any, ...]]:
        """The responses of a request: tensors, error, parameters."""
        return self._answers.pop(key)

    def take_rescheduled(self) -> set[int]:
        """The keys of the requests that the model gave back."""
        rescheduled, self._rescheduled = self._rescheduled, set()
        return rescheduled

    def close(self) -> None:
        """Ends the event loop of a model with coroutines."""
        if self._runner is not None:
            self._runner.close()

    def send(self, message: tuple[Any, ...]) -> None:
        message = messages.decode(messages.encode(message)[4:])  # what the model does to its arrays later is its own
        kind = message[0]
        if kind == messages.CALL:
            self._on_call(message)
            return
        with self._changed:
            if kind == messages.RESULTS:
                self._on_results(message)
            elif kind == messages.RESPONSE:
                self._on_response(message[1], message[2], message[3])
            elif kind == messages.LOG:
                self.logs.append(LogEntry(_LEVELS[message[1]], *message[2:]))
            elif kind == messages.METRIC:
                self._answer(message[1], lambda: self.metrics.apply(message[2], message[3]))
            elif kind == messages.CONTROL:
                self._answer(message[1], lambda: self._control(message[2], message[3]))
            elif kind == messages.RESCHEDULE:
                self._rescheduled.add(message[1])
                self._open.discard(message[1])
            elif kind != messages.CALL_CANCEL:
                self._reply = message
            self._changed.notify_all()

    def gather(self) -> AbstractContextManager[None]:
        return nullcontext()

    def post(self, message: tuple[Any, ...]) -> None:
        self.send(message)

    def wait_until(self, is_done: Callable[[], object]) -> None:
        with self._changed:
            if not self._changed.wait_for(is_done, self._timeout_s):
                raise TimeoutError(f"the model has not sent its final response within {self._timeout_s:g} s")

    def poll(self) -> None:
        """Nothing ever waits."""

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Every answer is there before anybody could wait for it."""

    def unwatch(self, loop: asyncio.AbstractEventLoop) -> None:
        """The counterpart of `watch`."""

    def _execute_async(self, forms: list[tuple[Any, ...]]) -> None:
        import asyncio

        from trireme.backends.python.worker.async_service import execute

        if self._runner is None:
            self._runner = asyncio.Runner()
            self._worker.use_loop(self._runner.run)
        self._runner.run(execute(self._worker, 1, forms))

    def _on_results(self, message: tuple[Any, ...]) -> None:
        _, _, answers, error, *_ = message
        if error is not None:
            text = f"Failed to process the request(s) for model '{self.instance_name}', message: {error[1]}"
            for key in [key for key in self._keys if key in self._open]:
                self._on_response(key, ((), (error[0], text), None), True)
            return
        for key, answer in zip(self._keys, answers, strict=True):
            if answer is not None:
                self._on_response(key, answer, True)

    def _on_response(self, key: int, answer: tuple[Any, ...] | None, is_final: bool) -> None:
        if answer is not None:
            tensors, error, parameters = answer
            failure = None
            if error is not None:
                number, text = error
                is_long_prompt = number == PROMPT_TOO_LONG
                failure = PromptTooLongError(text) if is_long_prompt else ServingError(text, ErrorKind(number))
                failure.__cause__ = self._exception
            self._answers[key].append((tensors, failure, parameters))
        if is_final:
            self._open.discard(key)

    def _on_call(self, message: tuple[Any, ...]) -> None:
        _, number, name, version, form, is_decoupled, _ = message
        inputs = {tensor[0]: Tensor(*tensor).to_numpy() for tensor in form[2]}
        self.calls.append(ModelCall(name, version, inputs, tuple(form[3]), form[7]))
        try:
            replies = self._call(name, inputs, is_decoupled)
        except Exception as error:
            kind = int(error.kind) if isinstance(error, ServingError) else _INTERNAL
            self._worker.receive((messages.CALL_RESPONSE, number, ((), (kind, str(error)), None), True))
            return
        for reply in replies:
            tensors = [_encoded(output, value) for output, value in reply.items() if output in form[3] or not form[3]]
            self._worker.receive((messages.CALL_RESPONSE, number, (tensors, None, None), not is_decoupled))
        if is_decoupled:
            self._worker.receive((messages.CALL_RESPONSE, number, None, True))

    def _call(self, name: str, inputs: dict[str, NDArray[Any]], is_decoupled: bool) -> list[Arrays]:
        function = self._bls.get(name)
        if function is None:
            reason = f"Failed for execute the inference request. Model '{name}' is not ready."
            raise ServingError(f"Model {name} - Error when running inference: {reason}", ErrorKind.INTERNAL)
        outputs = function(inputs)
        if isinstance(outputs, Mapping):
            return [outputs]
        if not is_decoupled:
            text = f"Model {name} is using the decoupled. Please use 'decoupled=True' argument to the 'exec' call."
            raise ServingError(text, ErrorKind.INTERNAL)
        return list(outputs)

    def _control(self, operation: str, arguments: tuple[Any, ...]) -> bool | None:
        self.controls.append((operation, arguments))
        return arguments[0] in self._bls if operation == "is_model_ready" else None

    def _answer(self, token: int, operation: Callable[[], Any]) -> None:
        value, error = None, None
        try:
            value = operation()
        except ServingError as failure:
            error = (int(failure.kind), failure.message)
        if token:
            self._worker.receive((messages.CONTROL_RESULT, token, value, error))

    def _keep_exception(self, error: BaseException) -> None:
        self._exception = error


def _encoded(name: str, value: Any) -> tuple[Any, ...]:
    tensor = Tensor.from_numpy(name, np.asarray(value))
    return (name, tensor.datatype, tuple(tensor.shape), bytes(tensor.data))
