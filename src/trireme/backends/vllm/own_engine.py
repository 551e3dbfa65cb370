"""Our engine behind the tensors of Triton's vLLM backend."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from trireme.backends.llm.adapter_metrics import AdapterMetrics
from trireme.backends.llm.answer_form import OPTIONS, AnswerForms
from trireme.backends.llm.answers import REASONS
from trireme.backends.llm.logprobs import by_id
from trireme.backends.llm.pending_requests import PendingRequests
from trireme.backends.llm.sampling_options import MAX_TOKENS, SAMPLING_OPTIONS, read_params
from trireme.backends.llm.settings import Settings
from trireme.backends.served_engine.device_report import report_devices
from trireme.backends.served_engine.engine_watchdog import EngineWatchdog
from trireme.backends.served_engine.metrics import EngineMetrics
from trireme.backends.served_engine.refusals import end_code, unknown_option
from trireme.backends.vllm.text_answer import ChoiceDelta, TextAnswer
from trireme.llm.adapters.adapter import PlacedAdapter
from trireme.llm.generation import Generation, TextOutput
from trireme.llm.grammar.compiler import NewGrammarError
from trireme.llm.request import TokenLogprobs
from trireme.llm.sampling_params import SamplingParams
from trireme.llm.text_engine import Engine

_DEFAULTS: Mapping[str, Any] = {"temperature": 1.0, "max_tokens": 16}
"""vLLM's, where a request does not say; a chat may have as many tokens as fit, as with its server."""
_KNOWN = SAMPLING_OPTIONS | OPTIONS
_Begin = Callable[..., None]
"""Takes when the answer has to be whole, and the adapter where the request has one."""


class OwnEngine:
    """Loads the model on its device; answers come in the thread that writes texts."""

    def __init__(self, settings: Settings, name: str, version: str) -> None:
        self._engine = Engine.load(
            settings.folder, device=settings.device, dtype=settings.dtype, options=settings.options
        )
        report_devices(self._engine.core.executor, settings.device)
        self._forms = AnswerForms(self._engine, None, None)
        self._pending = PendingRequests(self._engine, settings.options.max_waiting)
        self._metrics = EngineMetrics(self._engine.core, name, version)
        self._adapter_metrics: AdapterMetrics | None = None
        if settings.options.adapters is not None:
            self._adapter_metrics = AdapterMetrics(self._engine.adapters, name, version)
        self._watchdog = EngineWatchdog(self._engine.core, settings.options.step_timeout_s, self._look_around)
        self._watchdog.start()

    @property
    def is_alive(self) -> bool:
        """Whether steps are still run."""
        return self._engine.core.is_alive

    def _look_around(self) -> None:
        """Now and then, in the watchdog's thread."""
        self._pending.end_overdue()
        self._metrics.update()
        if self._adapter_metrics is not None:
            self._adapter_metrics.update()

    def submit(self, answer: TextAnswer, timeout_s: float | None) -> None:
        """Raises InvalidRequestError, SamplingError, EngineBusyError or EngineClosedError."""
        self._begin_until(None if timeout_s is None else time.monotonic() + timeout_s, answer)

    def _begin_until(self, deadline: float | None, answer: TextAnswer) -> None:
        """Now, or when a grammar is compiled or an adapter read."""
        try:
            begin = self._read(answer)
        except NewGrammarError as new:
            again = partial(self._begin_until, deadline, answer)
            self._pending.compile(new, answer.sender, deadline, again)
            return
        if not answer.request.adapter:
            begin(deadline)
        else:
            self._pending.adapt(answer.request.adapter, answer.sender, deadline, partial(begin, deadline))

    def _read(self, answer: TextAnswer) -> _Begin:
        """What begins a request; raises NewGrammarError where its grammar has to be compiled before."""
        wanted, tokenizer = answer.request, self._engine.tokenizer
        options = {**_DEFAULTS, **wanted.options}
        if "max_tokens" not in wanted.options and (wanted.chat is not None or wanted.options.keys() & MAX_TOKENS):
            del options["max_tokens"]
        for key in options.keys() - _KNOWN:
            raise unknown_option("sampling parameter", key, _KNOWN)
        tells = options.get("logprobs") is not None
        if "cumulative_logprob" in wanted.told and not tells:
            options["logprobs"] = 0
        tokens = tokenizer.encode(wanted.prompt, True) if wanted.chat is None else wanted.chat.tokens(tokenizer)
        form = self._forms.read(options, False, tokens)
        params = read_params(options, tokenizer, form.grammar, form.shown_ids)
        return partial(self._begin, answer, tokens, params, tells)

    def _begin(
        self,
        answer: TextAnswer,
        tokens: list[int],
        params: SamplingParams,
        tells: bool,
        deadline: float | None,
        adapter: PlacedAdapter | None = None,
    ) -> None:
        """An adapter that was taken is given back at the end."""
        if adapter is not None and self._adapter_metrics is not None:
            self._adapter_metrics.count(adapter.name)
        answer.begin(params.choices, len(tokens))
        listener = _Listener(self, answer, len(tokens), params.choices, tells)
        self._watchdog.expect_work()
        timeout_s = None if deadline is None else max(deadline - time.monotonic(), 0.001)
        generation = self._engine.submit(tokens, params, listener, timeout_s=timeout_s, adapter=adapter)
        listener.generation = generation
        if answer.is_closed:  # before it could be cancelled
            generation.cancel()
        self._watchdog.active[generation] = answer.sender
        if generation.is_finished:  # before it was noted
            self._watchdog.active.pop(generation, None)

    def close(self) -> None:
        """Ends what is under way and gives the device's memory back."""
        self._watchdog.stop()
        self._engine.close()
        self._pending.stop()

    def ended(self, listener: _Listener, output: TextOutput) -> None:
        """A request has its last output."""
        if listener.generation is not None:
            self._watchdog.active.pop(listener.generation, None)
        self._metrics.ended(output, listener.input_count, listener.choice_count)

    def described(self, token: int, found: TokenLogprobs) -> dict[int, dict[str, Any]]:
        """What is known of a token and of the likeliest in its place, by their ids."""
        return by_id(self._engine.tokenizer, token, found)


class _Listener:
    """Turns an engine's outputs into deltas of an answer."""

    def __init__(self, engine: OwnEngine, answer: TextAnswer, input_count: int, choice_count: int, tells: bool) -> None:
        self._engine = engine
        self._answer = answer
        self._tells = tells
        """Whether probabilities were asked for, and not only their sum."""
        self._told_count = 0
        self.input_count = input_count
        self.choice_count = choice_count
        self.generation: Generation | None = None
        answer.cancel = self._cancel

    def __call__(self, output: TextOutput) -> None:
        try:
            if output.is_last:
                self._answer.sender.measured(EngineMetrics.durations(output, self.choice_count))
            self._take(output)
        finally:
            if output.is_last:
                self._engine.ended(self, output)

    def _take(self, output: TextOutput) -> None:
        reason = output.finish_reason
        if reason is not None and reason not in REASONS:
            text = output.error or f"the request was ended: {reason.value}"
            self._answer.fail(text, end_code(reason))
            return
        known = output.logprobs
        pairs = zip(output.token_ids, known, strict=False)
        delta = ChoiceDelta(
            output.index,
            output.text,
            self._count(output),
            sum(one.logprob for one in known),
            [self._engine.described(token, one) for token, one in pairs] if self._tells else None,
            REASONS[reason] if reason is not None else None,
        )
        if delta.text or delta.token_count or reason is not None:
            self._answer.take([delta], output.is_last)

    def _count(self, output: TextOutput) -> int:
        """Tokens, with the one that ended the text and is not shown."""
        count = len(output.token_ids)
        if output.usage is not None and self.choice_count == 1:
            count = output.usage.completion_tokens - self._told_count
        self._told_count += count
        return count

    def _cancel(self) -> None:
        if self.generation is not None:
            self.generation.cancel()
