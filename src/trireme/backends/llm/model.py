"""One instance of a language model: requests go to its engine as they come, and are answered as they are written."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from functools import partial

from trireme.backends.llm import tensors
from trireme.backends.llm.adapter_metrics import AdapterMetrics
from trireme.backends.llm.answer_form import AnswerForms
from trireme.backends.llm.answers import Answer, tokens_answer
from trireme.backends.llm.llm_request import LlmRequest, read_llm_request, read_timeout_s
from trireme.backends.llm.pending_requests import PendingRequests
from trireme.backends.llm.settings import read_settings
from trireme.backends.python.pb_utils import runtime as pb_runtime
from trireme.backends.python.pb_utils.logger import route_records_of
from trireme.backends.python.pb_utils.model_config import ModelConfig
from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.backends.python.pb_utils.sender import InferenceResponseSender
from trireme.backends.python.pb_utils.types import TRITONSERVER_RESPONSE_COMPLETE_FINAL
from trireme.backends.served_engine.device_report import report_devices
from trireme.backends.served_engine.engine_watchdog import EngineWatchdog
from trireme.backends.served_engine.metrics import EngineMetrics
from trireme.backends.served_engine.refusals import InvalidRequestError, begin_each
from trireme.backends.served_engine.slow_streams import SlowStreams
from trireme.llm.adapters.adapter import PlacedAdapter
from trireme.llm.chat.formats import find_reasoning, find_tool_format
from trireme.llm.generation import Generation, TextOutput
from trireme.llm.grammar.compiler import NewGrammarError
from trireme.llm.text_engine import Engine


class TritonPythonModel:
    """Takes requests without waiting for their answers."""

    @staticmethod
    def auto_complete_config(config: ModelConfig) -> ModelConfig:
        """Fills in the tensors; loads nothing."""
        return tensors.complete(config)

    def initialize(self, args: Mapping[str, str]) -> None:
        """Loads the model on its device."""
        route_records_of("trireme.llm")  # which device, whose code, and why
        config = json.loads(args["model_config"])
        settings = read_settings(config, args, pb_runtime.current().channel.gather)
        self._engine = Engine.load(
            settings.folder, device=settings.device, dtype=settings.dtype, options=settings.options
        )
        report_devices(self._engine.core.executor, settings.device)
        template = self._engine.tokenizer.template_text
        self._forms = AnswerForms(
            self._engine,
            find_tool_format(settings.tool_parser, template),
            find_reasoning(settings.reasoning_parser, template),
            settings.max_new_tokens,
        )
        self._metrics = EngineMetrics(self._engine.core, config["name"], args["model_version"])
        self._pending = PendingRequests(self._engine, settings.options.max_waiting)
        self._adapter_metrics: AdapterMetrics | None = None
        if settings.options.adapters is not None:
            self._adapter_metrics = AdapterMetrics(self._engine.adapters, config["name"], args["model_version"])
        self._watchdog = EngineWatchdog(self._engine.core, settings.options.step_timeout_s, self._look_around)
        self._slow_streams = SlowStreams(pb_runtime.current().channel.wait_until)
        self._watchdog.start()

    def execute(self, requests: list[InferenceRequest]) -> None:
        """Hands the requests to the engine."""
        begin_each(requests, self._begin)

    def _begin(self, request: InferenceRequest, sender: InferenceResponseSender) -> None:
        timeout_s = read_timeout_s(request)
        self._begin_until(None if timeout_s is None else time.monotonic() + timeout_s, request, sender)

    def _begin_until(self, deadline: float | None, request: InferenceRequest, sender: InferenceResponseSender) -> None:
        try:
            llm_request = read_llm_request(
                request, self._engine.tokenizer, request.requested_output_names(), self._forms
            )
        except NewGrammarError as new:
            self._pending.compile(new, sender, deadline, partial(self._begin_until, deadline, request, sender))
            return
        if llm_request.operation:
            self._answer_about_tokens(llm_request, sender)
        elif not llm_request.adapter:
            self._submit(llm_request, sender, deadline)
        else:
            begin = partial(self._submit_adapted, llm_request, sender, deadline)
            self._pending.adapt(llm_request.adapter, sender, deadline, begin)

    def _submit_adapted(
        self, llm_request: LlmRequest, sender: InferenceResponseSender, deadline: float | None, adapter: PlacedAdapter
    ) -> None:
        if self._adapter_metrics is not None:
            self._adapter_metrics.count(adapter.name)
        self._submit(llm_request, sender, deadline, adapter)

    def is_ready(self) -> bool:
        """Whether the engine still runs steps."""
        return self._engine.core.is_alive

    def finalize(self) -> None:
        """Ends what is under way and gives the device's memory back."""
        self._watchdog.stop()
        self._engine.close()
        self._pending.stop()

    def _look_around(self) -> None:
        """Now and then, in the watchdog's thread."""
        self._pending.end_overdue()
        self._metrics.update()
        if self._adapter_metrics is not None:
            self._adapter_metrics.update()

    def _submit(
        self,
        llm_request: LlmRequest,
        sender: InferenceResponseSender,
        deadline: float | None,
        adapter: PlacedAdapter | None = None,
    ) -> None:
        generation: Generation | None = None
        active = self._watchdog.active

        def on_end(output: TextOutput) -> None:
            if generation is not None:
                active.pop(generation, None)
            self._metrics.ended(output, len(llm_request.tokens), llm_request.params.choices)

        def cancel() -> None:
            if generation is not None:
                generation.cancel()

        def listen(output: TextOutput) -> None:
            if output.is_last:
                sender.measured(self._metrics.durations(output, llm_request.params.choices))
            answer(output)

        try:
            answer = Answer(llm_request, sender, self._engine.tokenizer, on_end, cancel, self._slow_streams)
        except Exception:
            if adapter is not None:
                self._engine.adapters.give_back(adapter)
            raise
        self._watchdog.expect_work()
        generation = self._engine.submit(
            llm_request.tokens,
            llm_request.params,
            listen,
            priority=llm_request.priority,
            timeout_s=None if deadline is None else max(0.0, deadline - time.monotonic()),
            adapter=adapter,
        )
        if answer.has_failed:  # before it could be cancelled
            generation.cancel()
        active[generation] = sender
        if generation.is_finished:  # before it was noted
            active.pop(generation, None)

    def _answer_about_tokens(self, llm_request: LlmRequest, sender: InferenceResponseSender) -> None:
        if llm_request.operation not in ("tokenize", "detokenize"):
            raise InvalidRequestError(f"'operation' must be tokenize or detokenize, found '{llm_request.operation}'")
        tokenizer, spec, tokens = self._engine.tokenizer, self._engine.core.spec, llm_request.tokens
        known = max(tokenizer.vocab_size, spec.vocab_size)
        if tokens and max(tokens) >= known:
            raise InvalidRequestError(f"token id {max(tokens)} is not one of the {known} of the vocabulary")
        if llm_request.has_token_texts:
            texts = [tokenizer.token_text(token) for token in tokens]
        else:
            texts = [tokenizer.decode(tokens, skip_special=False)]
        sender.send(tokens_answer(tokens, texts, spec.max_positions), TRITONSERVER_RESPONSE_COMPLETE_FINAL)
