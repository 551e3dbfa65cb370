"""The worker: one model, loaded, initialized, executed and finalized as the server's messages ask."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from trireme.backends.python.channel import messages
from trireme.backends.python.channel.channel import Channel
from trireme.backends.python.compat import numpy_names
from trireme.backends.python.compat.second_try import with_second_try
from trireme.backends.python.pb_utils import logger as pb_logger
from trireme.backends.python.pb_utils import runtime as pb_runtime
from trireme.backends.python.pb_utils.errors import exception_text
from trireme.backends.python.pb_utils.lookup import using_decoupled_model_transaction_policy
from trireme.backends.python.pb_utils.request import InferenceRequest, decode_request
from trireme.backends.python.pb_utils.runtime import Runtime
from trireme.backends.python.pb_utils.server_calls import ServerCalls
from trireme.backends.python.worker.interruption import call_model
from trireme.backends.python.worker.model_import import extend_path, is_coroutine_function, load_model_class
from trireme.backends.python.worker.results import ModelReturnError, encode_results, failure_text, missing_inputs_text
from trireme.backends.python.worker.torch_threads import TorchThreads
from trireme.backends.python.worker.trace_context import enter_trace

_INTERNAL = 1  # ErrorKind.INTERNAL


class Worker:
    """Owns the model object. `receive` may be called in any thread; everything else belongs to the main thread.

    Whatever a model raises is an error of what it was asked, and ends no process: `sys.exit` in a library, a
    GeneratorExit that was thrown by hand, a base class of one's own.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._settings: dict[str, Any] = {}
        self._model_class: Any = None
        self._execute: Callable[[list[InferenceRequest]], Any] = self._refuse_execution
        self._run_coroutine: Callable[[Any], Any] | None = None
        self.threads = TorchThreads()
        self.model: Any = None
        self.is_async = False
        self.is_fresh = False  # initialized, and nothing done since
        self.on_exception: Callable[[BaseException], None] | None = None  # for one who runs the worker in its process
        self._routes: dict[int, Callable[[tuple[Any, ...]], None]] = {
            messages.CONFIGURE: self._on_configure,
            messages.AUTO_COMPLETE: self._on_auto_complete,
            messages.INITIALIZE: self._on_initialize,
            messages.CHECK_READY: self._on_check_ready,
            messages.FINALIZE: self._on_finalize,
            messages.THREADS: lambda message: self.threads.set_count(message[1]),
        }

    def connect(self, channel: Channel) -> None:
        """Gives the worker its way to the server; before anything else."""
        self.channel = channel
        self.server_calls = ServerCalls(channel)
        self.runtime = Runtime(channel, self.server_calls)
        pb_runtime.install(self.runtime)

    def disconnect(self) -> None:
        """The counterpart of `connect`."""
        pb_runtime.uninstall(self.runtime)

    def receive(self, message: tuple[Any, ...]) -> bool:
        """Handles at once what somebody may be waiting for; true for what is the main thread's business."""
        kind = message[0]
        if kind == messages.EXECUTE:
            return True
        if kind == messages.CALL_RESPONSE:
            self.server_calls.on_call_response(message)
        elif kind == messages.CONTROL_RESULT:
            self.server_calls.on_result(message)
        elif kind == messages.CANCEL:
            self.runtime.cancelled.add(message[1])
        elif kind == messages.CREDITS:
            credits = self.runtime.credits
            credits[message[1]] = credits.get(message[1], 0) + message[2]
        elif kind == messages.LOG_LEVEL:
            self.runtime.verbose_level = message[1]
        elif kind == messages.TRIM:
            if self.channel.arena is not None:
                self.channel.arena.trim()
        else:
            return True
        return False

    def handle(self, message: tuple[Any, ...]) -> None:
        """Does what the message asks and answers it."""
        if message[0] == messages.EXECUTE:
            self.execute(message[1], message[2])
        else:
            self._routes[message[0]](message)

    @property
    def is_debug(self) -> bool:
        return bool(self._settings.get("is_debug"))

    @property
    def is_finished(self) -> bool:
        return self.runtime.phase == pb_runtime.ENDING

    def execute(self, batch: int, forms: list[tuple[Any, ...]]) -> None:
        """Runs the model on a batch and sends its results."""
        start_ns = monotonic_ns()
        requests = self.decode_batch(forms)
        begin_ns = monotonic_ns()
        result = failure = None
        context = forms[0][8]
        leave = None
        try:
            try:
                leave = enter_trace(context) if context is not None else None
                result = call_model(self._execute, requests)
                if hasattr(result, "__await__"):
                    result = self._complete(result)
            finally:
                if leave is not None:
                    leave()
        except BaseException as error:
            failure = self.describe(error)
        message = self.settle(batch, requests, result, failure, (start_ns, begin_ns))
        del requests, result  # so that memory lent by the server goes back with this very message
        self.channel.send(message)

    def decode_batch(self, forms: list[tuple[Any, ...]]) -> list[InferenceRequest]:
        """The requests of a batch; what they call in their turn is marked as theirs where there is only one."""
        runtime = self.runtime
        if runtime.missing_inputs:
            runtime.missing_inputs.clear()
        pb_runtime.parent_key.set(forms[0][0] if len(forms) == 1 else 0)
        return [decode_request(form, runtime) for form in forms]

    def settle(
        self, batch: int, requests: list[InferenceRequest], result: Any, failure: str | None, times: tuple[int, int]
    ) -> tuple[Any, ...]:
        """The RESULTS message of an execution that has ended with a result or a failure."""
        end_ns = monotonic_ns()
        answers: list[tuple[Any, ...] | None] = []
        if failure is None:
            try:
                answers = encode_results(result, requests, self.runtime, self._settings["instance_name"])
            except BaseException as error:
                failure = self.describe(error)
        if failure is not None:
            for request in requests:
                if request._sender is not None:
                    request._sender.abandon()
        if self.runtime.cancelled:
            self._forget_cancelled(requests)
        error_message = None if failure is None else (_INTERNAL, failure)
        start_ns, begin_ns = times
        durations = (begin_ns - start_ns, end_ns - begin_ns, monotonic_ns() - end_ns)
        return (messages.RESULTS, batch, answers, error_message, *durations)

    def use_loop(self, run_until_complete: Callable[[Any], Any]) -> None:
        """Coroutines of the model are run by this from now on."""
        self._run_coroutine = run_until_complete

    def _complete(self, coroutine: Any) -> Any:
        """Runs a coroutine that came from an execute not marked as one."""
        if self._run_coroutine is None:
            import asyncio

            self._run_coroutine = asyncio.Runner().run
        return call_model(self._run_coroutine, coroutine)

    def describe(self, error: BaseException) -> str:
        """What the client is told of the model's exception."""
        if isinstance(error, SystemExit) and os.getpid() != self._pid:
            raise error  # a child that the model forked is done
        if self.on_exception is not None:
            self.on_exception(error)
        if isinstance(error, AttributeError):
            numpy_names.advise(error)
        return failure_text(error) + missing_inputs_text(error, self.runtime.missing_inputs)

    def _forget_cancelled(self, requests: list[InferenceRequest]) -> None:
        for request in requests:
            if request._sender is None or request._sender.is_closed:
                self.runtime.cancelled.discard(request._message[0])

    def _on_configure(self, message: tuple[Any, ...]) -> None:
        settings = self._settings = message[1]
        runtime = self.runtime
        runtime.model_dir = os.path.abspath(settings["version_dir"])
        runtime.is_decoupled = bool(settings.get("is_decoupled"))
        runtime.verbose_level = settings.get("verbose_level", 0)
        runtime.instance_name = settings["instance_name"]
        extend_path(settings)

    def _on_auto_complete(self, message: tuple[Any, ...]) -> None:
        try:
            completed = self._auto_complete(message[1])
        except BaseException as error:
            self._fail(error)
        else:
            self.channel.send((messages.COMPLETED, completed))

    def _auto_complete(self, config_json: str) -> str:
        complete = getattr(self._load(), "auto_complete_config", None)
        if complete is None:
            return config_json
        import json

        from trireme.backends.python.pb_utils.model_config import ModelConfig

        config = call_model(complete, ModelConfig(config_json))
        if not isinstance(config, ModelConfig):
            raise ModelReturnError(
                f"auto_complete_config function in model '{self._settings['model_name']}' must return a valid "
                "pb.ModelConfig object."
            )
        return json.dumps(config.as_dict())

    def _on_initialize(self, message: tuple[Any, ...]) -> None:
        runtime = self.runtime
        try:
            model_class = self._load()
            runtime.phase = pb_runtime.INITIALIZING
            runtime.is_decoupled = self._is_decoupled(message[1])
            with_second_try(lambda: self._start_model(model_class, message[1]))
        except BaseException as error:
            self._fail(error)
            return
        self._execute = getattr(self.model, "execute", self._refuse_execution)
        self.is_async = is_coroutine_function(self._execute)
        self.is_fresh = True
        runtime.phase = pb_runtime.SERVING
        facts = {
            "is_async": self.is_async,
            "has_is_ready": hasattr(self.model, "is_ready"),
            "devices": runtime.devices,
        }
        self.channel.send((messages.READY, facts))

    def _start_model(self, model_class: Any, arguments: dict[str, str]) -> None:
        self.model = call_model(model_class)
        initialize = getattr(self.model, "initialize", None)
        if initialize is not None:
            call_model(initialize, arguments)

    def _is_decoupled(self, arguments: dict[str, str]) -> bool:
        """As the final configuration has it, which auto-completion may have changed since CONFIGURE."""
        config_json = arguments.get("model_config", "")
        if '"decoupled"' not in config_json:
            return self.runtime.is_decoupled
        import json

        return using_decoupled_model_transaction_policy(json.loads(config_json))

    def _load(self) -> Any:
        if self._model_class is None:
            self._model_class = with_second_try(lambda: load_model_class(self._settings))
        return self._model_class

    def _fail(self, error: BaseException) -> None:
        import traceback

        text = self.describe(error)
        trace = "".join(traceback.format_exception(error))
        self.channel.send((messages.FAILED, _INTERNAL, text, trace))

    def _on_check_ready(self, message: tuple[Any, ...]) -> None:
        try:
            answer = call_model(self.model.is_ready)
            if hasattr(answer, "__await__"):
                answer = self._complete(answer)
        except BaseException as error:
            self.channel.send((messages.READINESS, message[1], False, exception_text(error)))
        else:
            self.answer_readiness(message[1], answer)

    def answer_readiness(self, token: int, answer: Any) -> None:
        """Sends what `is_ready` returned."""
        is_bool = isinstance(answer, bool)
        reason = "" if is_bool else "is_ready() must return a boolean value"
        self.channel.send((messages.READINESS, token, is_bool and answer, reason))

    def _on_finalize(self, _message: tuple[Any, ...]) -> None:
        self.runtime.phase = pb_runtime.ENDING
        try:
            finalize = getattr(self.model, "finalize", None)
            if finalize is not None:
                answer = call_model(finalize)
                if hasattr(answer, "__await__"):
                    self._complete(answer)
        except BaseException as error:
            frame = error.__traceback__
            path, line = __file__, 0
            while frame is not None:
                path, line = frame.tb_frame.f_code.co_filename, frame.tb_lineno
                frame = frame.tb_next
            pb_logger.write("E", path, line, f"finalize failed: {exception_text(error)}")
        self.model = None
        self._execute = self._refuse_execution
        self.channel.send((messages.FINALIZED,))

    def _refuse_execution(self, _requests: list[InferenceRequest]) -> Any:
        path = self._settings.get("model_file", "")
        raise ModelReturnError(f"Python model {path} does not implement `execute` method.")
