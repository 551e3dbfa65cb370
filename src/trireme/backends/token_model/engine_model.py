"""One instance of a token model: requests go to its engine as they come, and are answered as tokens are written."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from trireme.backends.llm.adapter_metrics import AdapterMetrics
from trireme.backends.python.pb_utils import runtime as pb_runtime
from trireme.backends.python.pb_utils.logger import route_records_of
from trireme.backends.python.pb_utils.lookup import using_decoupled_model_transaction_policy
from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.backends.python.pb_utils.response import InferenceResponse
from trireme.backends.python.pb_utils.sender import InferenceResponseSender
from trireme.backends.python.pb_utils.types import TRITONSERVER_RESPONSE_COMPLETE_FINAL, triton_string_to_numpy
from trireme.backends.served_engine.device_report import report_devices
from trireme.backends.served_engine.engine_watchdog import EngineWatchdog
from trireme.backends.served_engine.metrics import EngineMetrics
from trireme.backends.served_engine.refusals import begin_each, code_of
from trireme.backends.served_engine.slow_streams import SlowStreams
from trireme.backends.token_model.adapted_requests import AdaptedRequests
from trireme.backends.token_model.answer_sender import AnswerSender, SharedSender
from trireme.backends.token_model.checkpoint_folder import tokenizer_sizes
from trireme.backends.token_model.family import Family
from trireme.backends.token_model.parameters import read_token_settings
from trireme.backends.token_model.request_ids import RequestIds
from trireme.backends.token_model.token_answer import Lane, TokenAnswer
from trireme.backends.token_model.token_request import Limits, TokenRequest, read_request
from trireme.llm.adapters.adapter import PlacedAdapter
from trireme.llm.adapters.store import AdapterStore
from trireme.llm.engine import EngineCore
from trireme.llm.executor_choice import is_on_cuda
from trireme.llm.generation import TextOutput, Usage
from trireme.llm.request import SequenceOutput
from trireme.llm.sampling_params import SamplingError
from trireme.llm.speculation.executor_pair import load_executors

_MOST_DIGITS = 100
"""Of an id, zeros before it included."""
_NOT_BEGUN = "a text of a request cannot be begun"
_LaneOutput = tuple[TokenAnswer, Lane, SequenceOutput]


class TokenModel:
    """Takes requests without waiting for their answers."""

    def __init__(self, family: Family) -> None:
        self._family = family
        self._ids = RequestIds()
        self._adapted: AdaptedRequests | None = None
        self._outputs: queue.SimpleQueue[_LaneOutput | None] = queue.SimpleQueue()

    def start(self, config: Mapping[str, Any], args: Mapping[str, str]) -> None:
        """Loads the model on its device."""
        for room in ("trireme.llm", "trireme.backends.token_model"):
            route_records_of(room)  # which device, which folder, and why
        self._around_answers = pb_runtime.current().channel.gather
        settings = read_token_settings(config, args, self._around_answers)
        self._has_prompt = settings.has_prompt
        self._is_decoupled = using_decoupled_model_transaction_policy(config)
        self._types = {entry["name"]: triton_string_to_numpy(entry["data_type"]) for entry in config["output"]}
        engine = settings.engine
        dtype = settings.gpu_dtype if engine.dtype == "auto" and is_on_cuda(engine.device) else engine.dtype
        executor, draft = load_executors(engine.folder, engine.options, engine.device, dtype)
        self._core = EngineCore(executor, engine.options, draft=draft)
        report_devices(executor, engine.device)
        spec, kept = self._core.spec, self._core.executor.limits
        self._limits = Limits(
            spec.eos_ids,
            not self._family.fills_to_request,
            min(spec.max_positions, kept.block_count * kept.block_size),
            kept.max_sequences,
            self._family.length_penalty,
            settings.max_beams,
            spec.vocab_size,
            spec.bos_id if self._family.has_start else None,
            engine.options.adapters is not None,
            cache(lambda: tokenizer_sizes(engine.folder)),
        )
        self._slow_streams = SlowStreams(pb_runtime.current().channel.wait_until)
        self._metrics = EngineMetrics(self._core, config["name"], args["model_version"])
        if engine.options.adapters is not None:
            store = AdapterStore(spec, engine.options, executor)
            metrics = AdapterMetrics(store, config["name"], args["model_version"])
            self._adapted = AdaptedRequests(store, engine.options.max_waiting, metrics)
        self._watchdog = EngineWatchdog(self._core, engine.options.step_timeout_s, self._look_around)
        self._watchdog.start()
        self._writer = threading.Thread(target=self._write, name="llm-answers", daemon=True)
        self._writer.start()

    def execute(self, requests: list[InferenceRequest]) -> None:
        """Hands the requests to the engine."""
        begin_each(requests, self._begin)

    def is_ready(self) -> bool:
        """Whether the engine still runs steps."""
        return self._core.is_alive

    def stop(self) -> None:
        """Ends what is under way and gives the device's memory back."""
        self._watchdog.stop()
        self._core.close()
        if self._adapted is not None:
            self._adapted.stop()
        self._outputs.put(None)
        self._writer.join(timeout=10)

    def _begin(self, request: InferenceRequest, sender: InferenceResponseSender) -> None:
        token_request = read_request(
            request, self._limits, request.requested_output_names(), self._family.fills_to_request and self._has_sums
        )
        name = request.request_id() if self._family.checks_ids else ""
        if name and not (self._family.takes_any_id or is_number(name)):
            raise SamplingError(f"the request id must be a number without a sign, below 2^64, found '{name}'")
        if token_request.is_stop:
            self._stop_other(name, sender)
            return
        if self._ids.is_used(name):
            raise SamplingError(f"the request id {name} is in use by a request that has not ended")
        if token_request.is_stream and not self._is_decoupled:
            raise SamplingError("'streaming' needs a decoupled model: model_transaction_policy { decoupled: True }")
        answers = self._answers(token_request, name, sender)
        self._ids.add(name, answers)
        timeout_us = request.timeout()
        deadline = time.monotonic() + timeout_us / 1e6 if timeout_us else None
        submit = partial(self._submit, deadline, self._core.new_id())
        try:
            if self._adapted is not None and token_request.adapter is not None:
                self._adapted.begin(token_request.adapter, answers, submit, deadline)
            else:
                self._submit_all(answers, submit)
        except Exception:
            self._ids.remove(name)
            raise
        self._watchdog.active |= dict.fromkeys(answers, sender)
        for answer in answers:
            if answer.is_closed:  # before it was noted
                self._watchdog.active.pop(answer, None)

    def _look_around(self) -> None:
        """Now and then, in the watchdog's thread."""
        self._metrics.update()
        if self._adapted is not None:
            self._adapted.look_around()

    @property
    def _has_sums(self) -> bool:
        """Whether the model declares sums of probabilities, which an ensemble then waits for."""
        return "cum_log_probs" in self._types

    def _answers(self, token_request: TokenRequest, name: str, sender: InferenceResponseSender) -> list[TokenAnswer]:
        """One, or one for each text; none of them has begun."""
        if not (self._family.answers_apart and self._is_decoupled):
            if token_request.sequences > 1:
                raise SamplingError("'num_return_sequences' above 1 needs a decoupled model of a later release")
            return [self._answer(token_request, name, sender)]
        parts = token_request.apart()
        shared = SharedSender(sender, len(parts))
        return [self._answer(part, name, shared) for part in parts]

    def _answer(self, token_request: TokenRequest, name: str, sender: AnswerSender) -> TokenAnswer:
        def on_end() -> None:
            self._ids.ended(name, answer)
            self._watchdog.active.pop(answer, None)
            if self._adapted is not None:
                self._adapted.ended(answer)

        is_stream = token_request.is_stream or (self._is_decoupled and self._family.streams_whole)
        answer = TokenAnswer(
            token_request,
            self._family,
            self._types,
            sender,
            self._core.cancel,
            on_end,
            self._slow_streams,
            is_stream=is_stream,
            has_prompt=self._has_prompt,
        )
        return answer

    def _submit_all(self, answers: list[TokenAnswer], submit: Callable[[TokenAnswer], None]) -> None:
        """Raises where the first is refused; others are told."""
        submit(answers[0])
        for answer in answers[1:]:
            try:
                submit(answer)
            except Exception as error:
                answer.fail(error, code_of(error, _NOT_BEGUN))

    def _submit(
        self, deadline: float | None, request_id: int, answer: TokenAnswer, adapter: PlacedAdapter | None = None
    ) -> None:
        """All texts of a request have its id, by which the engine shares its room among requests."""
        begun: list[Lane] = []
        try:
            for lanes in answer.lanes_by_row():
                number = self._core.new_id()
                for lane in lanes:
                    lane.sequence_id = number
                self._core.submit(
                    lanes[0].row.tokens,
                    lanes[0].row.params,
                    *(self._listener(answer, lane) for lane in lanes),
                    timeout_s=None if deadline is None else max(deadline - time.monotonic(), 0.001),
                    end_ids=lanes[0].row.end_ids,
                    sequence_id=number,
                    adapter=adapter,
                    request_id=request_id,
                )
                begun += lanes
        except Exception as error:
            if not begun:
                raise
            answer.fail(error, code_of(error, _NOT_BEGUN))  # the rows that were taken before one was refused are ended

    def _listener(self, answer: TokenAnswer, lane: Lane) -> Any:
        put = self._outputs.put
        return lambda output: put((answer, lane, output))

    def _stop_other(self, name: str, sender: InferenceResponseSender) -> None:
        if not name:
            raise SamplingError("'stop' needs the id of the request that is to be stopped")

        def answer_stop() -> None:
            sender.send(InferenceResponse([]), TRITONSERVER_RESPONSE_COMPLETE_FINAL)

        if self._ids.stop(name, answer_stop):
            return
        if not self._family.takes_any_id:
            raise SamplingError(f"no request with the id {name} is running: it has ended, or there was none")
        answer_stop()

    def _write(self) -> None:
        """The thread that answers, beside the one that runs steps."""
        while (told := self._outputs.get()) is not None:
            with self._around_answers():
                while told is not None:
                    self._tell(*told)
                    if self._outputs.empty():
                        break
                    told = self._outputs.get()
            if told is None:
                return

    def _tell(self, answer: TokenAnswer, lane: Lane, output: SequenceOutput) -> None:
        if output.finish_reason is not None:
            size = len(lane.row.tokens)
            usage = Usage(size, len(lane.written) + len(output.token_ids), output.cached_tokens)
            measured = TextOutput(0, "", usage=usage, times=output.times)
            answer.measured(self._metrics.durations(measured, 1))  # before the final response
            self._metrics.ended(measured, size, 1)
        answer.take(lane, output)


def is_number(name: str) -> bool:
    """Whether an id is one of 64 bits, in ASCII's digits."""
    return name.isascii() and name.isdecimal() and len(name) <= _MOST_DIGITS and int(name) < 2**64
