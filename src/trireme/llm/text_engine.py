"""The engine with texts: prompts and chats in, pieces of text out.

from trireme.llm import Engine, SamplingParams

with Engine.load("folder/of/a/model") as engine:
    print(engine.generate("Once upon a time", SamplingParams(max_tokens=20))[0].text)
    for piece in engine.stream([{"role": "user", "content": "Hello"}]):
        print(piece.text, end="")
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from trireme.llm.adapters.adapter import PlacedAdapter
from trireme.llm.adapters.store import AdapterStore
from trireme.llm.engine import EngineCore
from trireme.llm.executors.port import Executor
from trireme.llm.generation import Generation, TextOutput, Usage
from trireme.llm.grammar.compiler import GrammarCompiler
from trireme.llm.options import EngineOptions
from trireme.llm.request import FinishReason, SequenceOutput, TokenLogprobs
from trireme.llm.sampling_params import SamplingError, SamplingParams
from trireme.llm.tokenizer.loading import load_tokenizer
from trireme.llm.tokenizer.port import Tokenizer

log = logging.getLogger(__name__)

T = TypeVar("T")
_LOOK_EVERY_S = 0.25
_GRACE_S = 1.0
"""For the step under way, beyond the time that a request has."""

Prompt = str | Sequence[int] | Sequence[Mapping[str, Any]]
"""A text, token ids, or the messages of a chat."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer."""

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]
    """Of those tokens, and of the one that ended the text, which is counted but not among them, where one did."""
    finish_reason: FinishReason
    usage: Usage
    prompt_logprobs: tuple[TokenLogprobs, ...] | None = None
    """Of the prompt's tokens but the first, in its first answer, where they were asked for."""
    score: float | None = None
    """Of a beam: the sum of its log probabilities, divided by what its length counts."""


class GenerationError(RuntimeError):
    """A request that the engine could not finish."""


class Engine:
    """A model that answers many at once. All methods may be called from any thread."""

    def __init__(
        self,
        executor: Executor,
        tokenizer: Tokenizer,
        options: EngineOptions | None = None,
        draft: Executor | None = None,
    ) -> None:
        """`draft` is the executor of the smaller model, where tokens are guessed with one."""
        self.options = options or EngineOptions()
        self.tokenizer = tokenizer
        self._outputs: deque[tuple[Generation, int, SequenceOutput]] = deque()
        self._has_outputs = threading.Event()
        self._is_closed = False
        self.adapters = AdapterStore(executor.spec, self.options, executor)
        self.core = EngineCore(executor, self.options, self._has_outputs.set, draft)
        self.end_ids = frozenset(tokenizer.eos_ids) | frozenset(self.core.spec.eos_ids)
        self.grammars = GrammarCompiler(tokenizer, sorted(self.end_ids))
        self._writer = threading.Thread(target=self._write, name="llm-text", daemon=True)
        self._writer.start()

    @classmethod
    def load(
        cls, folder: str | Path, *, device: str = "auto", dtype: str = "auto", options: EngineOptions | None = None
    ) -> Engine:
        """Reads a Hugging Face folder; `device` is `auto`, `numpy`, `cpu`, `cuda` or `cuda:<number>`."""
        from trireme.llm.executor_choice import check_folder
        from trireme.llm.speculation.executor_pair import load_executors

        options = options or EngineOptions()
        check_folder(Path(folder))
        tokenizer = load_tokenizer(Path(folder))
        executor, draft = load_executors(folder, options, device, dtype)
        tokenizer.bound(executor.spec.max_positions)
        try:
            return cls(executor, tokenizer, options, draft)
        except Exception:
            for one in (draft, executor):
                if one is not None:
                    one.close()
            raise

    def submit(
        self,
        prompt: Prompt,
        params: SamplingParams,
        listener: Callable[[TextOutput], None],
        *,
        priority: int = 0,
        timeout_s: float | None = None,
        adapter: str | PlacedAdapter | None = None,
    ) -> Generation:
        """Lets a prompt be answered; the listener is called in the thread that writes texts, and must not block.

        An adapter that is named is read where it has to be, in the caller's thread; one that `adapters` has given out
        is given back at the end. Raises SamplingError, ChatError, EngineBusyError or EngineClosedError where it cannot
        be, and UnknownAdapterError or AdapterError.
        """
        generation = Generation(0, listener, self.core.cancel)
        generation.adapter = self.adapters.take(adapter) if isinstance(adapter, str) else adapter
        try:
            tokens = self.encode(prompt)
            generation.prompt_size = len(tokens)
            generation.add_choices(self.tokenizer, params)
            self._submit_choices(generation, tokens, params, priority, timeout_s)
        except Exception:
            generation.abandon()  # the choices that were taken before one was refused
            self._give_back_adapter(generation)
            raise
        return generation

    def _submit_choices(
        self, generation: Generation, tokens: list[int], params: SamplingParams, priority: int, timeout_s: float | None
    ) -> None:
        if params.beams:
            self._submit_beams(generation, tokens, params, priority, timeout_s)
            return
        salt = generation.adapter.salt if generation.adapter is not None else b""
        keys = self.core.keys_of(tokens, salt) if params.choices > 1 else None
        for index, choice in enumerate(generation.choices):
            own = params
            if index:
                own = replace(params, seed=params.seed_of(index), prompt_logprobs=None)
            choice.sequence_id = self.core.new_id()
            self.core.submit(
                tokens,
                own,
                self._listener(generation, index),
                priority=priority,
                timeout_s=timeout_s,
                end_ids=self.end_ids,
                keys=keys,
                sequence_id=choice.sequence_id,
                adapter=generation.adapter,
                request_id=generation.choices[0].sequence_id,
            )

    def _submit_beams(
        self, generation: Generation, tokens: list[int], params: SamplingParams, priority: int, timeout_s: float | None
    ) -> None:
        """One search writes all choices, and ends with any of them."""
        number = self.core.new_id()
        for choice in generation.choices:
            choice.sequence_id = number
        self.core.submit(
            tokens,
            params,
            *(self._listener(generation, index) for index in range(params.choices)),
            priority=priority,
            timeout_s=timeout_s,
            end_ids=self.end_ids,
            sequence_id=number,
            adapter=generation.adapter,
        )

    def encode(self, prompt: Prompt) -> list[int]:
        """The tokens of a prompt; raises SamplingError where it is none, ChatError where a chat cannot be written."""
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt)
        if isinstance(prompt, bytes | Mapping) or not isinstance(prompt, Iterable):
            raise _no_prompt(type(prompt).__name__)
        if set(map(type, prompt)) == {int}:  # as most are: to ask each number what it can do takes long
            return list(prompt)  # type: ignore[arg-type]
        messages = [entry for entry in prompt if isinstance(entry, Mapping)]
        if messages and len(messages) == len(prompt):
            return self.tokenizer.chat(messages)
        wrong = next((entry for entry in prompt if not isinstance(entry, Integral)), None)
        if wrong is not None:
            raise _no_prompt(f"{type(wrong).__name__} in a list")
        return [int(token) for token in prompt]  # type: ignore[arg-type]

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | None = None,
        timeout_s: float | None = None,
        adapter: str | None = None,
    ) -> list[Completion]:
        """Answers prompts together and waits for all of them: `params.choices` answers for each, in their order.

        Raises GenerationError where the engine fails, or a step hangs.
        """
        params = params or SamplingParams()
        done: queue.SimpleQueue[int] = queue.SimpleQueue()
        listed = _as_list(prompts)
        pieces: list[list[TextOutput]] = [[] for _ in listed]
        begun: list[Generation] = []
        try:
            for number, prompt in enumerate(listed):
                listener = _collect(pieces[number], number, done)
                begun.append(self.submit(prompt, params, listener, timeout_s=timeout_s, adapter=adapter))
            for _ in listed:
                self._wait_for(done, timeout_s)
        except BaseException:  # a prompt that is refused, or an interrupt
            for generation in begun:
                generation.abandon()
            raise
        return [completion for outputs in pieces for completion in _completions(outputs, params.choices)]

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        adapter: str | None = None,
        timeout_s: float | None = None,
    ) -> Iterator[TextOutput]:
        """The answer as it is written; leaving the loop early cancels the rest. Raises as `generate` does."""
        pieces: queue.SimpleQueue[TextOutput] = queue.SimpleQueue()
        generation = self.submit(prompt, params or SamplingParams(), pieces.put, adapter=adapter, timeout_s=timeout_s)
        try:
            while True:
                piece = self._wait_for(pieces, timeout_s)
                if piece.error:
                    raise GenerationError(piece.error)
                yield piece
                if piece.is_last:
                    return
        finally:
            generation.cancel()

    def _wait_for(self, pieces: queue.SimpleQueue[T], timeout_s: float | None) -> T:
        """What comes next. The engine itself ends what is overdue, between two steps; here it is looked whether those
        come."""
        most_s, limit = self.options.step_timeout_s, "step_timeout_s"
        if timeout_s is not None and timeout_s + _GRACE_S < most_s:
            most_s, limit = timeout_s + _GRACE_S, "timeout_s"
        while True:
            try:
                return pieces.get(timeout=_LOOK_EVERY_S)
            except queue.Empty:
                stalled_s = self.core.stalled_s()
            if stalled_s > most_s:
                raise GenerationError(f"a step has not ended within {most_s:g} s ({limit})")

    def close(self) -> None:
        """Ends what is under way and gives the device's memory back."""
        self.grammars.close()
        self.adapters.close()
        self.core.close()
        self._is_closed = True
        self._has_outputs.set()
        if threading.current_thread() is not self._writer:
            self._writer.join(timeout=10)

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _listener(self, generation: Generation, index: int) -> Callable[[SequenceOutput], None]:
        append = self._outputs.append
        return lambda output: append((generation, index, output))

    def _write(self) -> None:
        """The thread that turns tokens into text, beside the one that runs steps."""
        while True:
            self._has_outputs.wait()
            self._has_outputs.clear()
            if self._outputs:
                with self.options.around_texts():
                    self._tell_all()
            if self._is_closed and not self._outputs:
                return

    def _tell_all(self) -> None:
        while self._outputs:
            generation, index, output = self._outputs.popleft()
            try:
                generation.take(index, output)
            except Exception:
                log.exception("a listener failed; its request is ended")
                generation.cancel()
            if generation.is_finished:
                self._give_back_adapter(generation)

    def _give_back_adapter(self, generation: Generation) -> None:
        adapter, generation.adapter = generation.adapter, None
        if adapter is not None:
            self.adapters.give_back(adapter)


def _no_prompt(found: str) -> SamplingError:
    return SamplingError(f"a prompt is a text, a list of token ids or a list of messages, found {found}")


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, str | Mapping) or not isinstance(prompts, Iterable):
        return [prompts]  # which is refused as a prompt, where it is no text
    if len(prompts) and isinstance(prompts[0], Integral | Mapping):
        return [prompts]  # type: ignore[list-item]
    return list(prompts)  # type: ignore[arg-type]


def _collect(pieces: list[TextOutput], number: int, done: queue.SimpleQueue[int]) -> Callable[[TextOutput], None]:
    def listen(output: TextOutput) -> None:
        pieces.append(output)
        if output.is_last:
            done.put(number)

    return listen


def _completions(outputs: Sequence[TextOutput], choices: int) -> list[Completion]:
    found = []
    usage = outputs[-1].usage
    assert usage is not None
    for index in range(choices):
        own = [output for output in outputs if output.index == index]
        errors = [output.error for output in own if output.error]
        if errors:
            raise GenerationError(errors[0])
        reason = own[-1].finish_reason
        assert reason is not None
        found.append(
            Completion(
                "".join(output.text for output in own),
                tuple(token for output in own for token in output.token_ids),
                tuple(entry for output in own for entry in output.logprobs),
                reason,
                usage,
                next((output.prompt_logprobs for output in own if output.prompt_logprobs is not None), None),
                own[-1].score,
            )
        )
    return found
