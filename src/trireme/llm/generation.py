"""One request as texts: its choices, each written by a sequence, and what is told of them as they grow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from trireme.llm.adapters.adapter import PlacedAdapter
from trireme.llm.request import FinishReason, SequenceOutput, SequenceTimes, TokenLogprobs
from trireme.llm.sampling_params import SamplingParams
from trireme.llm.tokenizer.port import Tokenizer
from trireme.llm.tokenizer.stream_text import TextStream


@dataclass(frozen=True, slots=True)
class Usage:
    """How much a request took."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class TextOutput:
    """What is new of one choice of a request."""

    index: int
    text: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: FinishReason | None = None
    error: str = ""
    usage: Usage | None = None
    """With the last output of the last choice."""
    times: SequenceTimes | None = None
    """With the last output of a choice."""
    prompt_logprobs: tuple[TokenLogprobs, ...] | None = None
    """Of the prompt's tokens but the first, with the first output of the first choice, where they were asked for."""
    score: float | None = None
    """Of a beam."""

    @property
    def is_last(self) -> bool:
        """Whether nothing more comes of the whole request."""
        return self.usage is not None


@dataclass(slots=True)
class _Choice:
    stream: TextStream
    sequence_id: int = 0
    token_count: int = 0
    is_finished: bool = False


@dataclass(slots=True, eq=False)
class Generation:
    """Grows in the thread that turns tokens into text; `cancel` may be called from any."""

    prompt_size: int
    listener: Callable[[TextOutput], None]
    end_sequence: Callable[[int, FinishReason], None]
    choices: list[_Choice] = field(default_factory=list)
    cached_tokens: int = 0
    open_count: int = 0
    adapter: PlacedAdapter | None = None
    """What it is written with, until it is given back."""

    def add_choices(self, tokenizer: Tokenizer, params: SamplingParams) -> None:
        """As many as were asked for, before the first of them is submitted."""
        for _ in range(params.choices):
            stream = TextStream(
                tokenizer,
                params.stop,
                shown=params.shown_ids,
                includes_stop=params.includes_stop,
                min_tokens=params.min_tokens,
            )
            self.choices.append(_Choice(stream))
        self.open_count = len(self.choices)

    @property
    def is_finished(self) -> bool:
        return self.open_count == 0

    def cancel(self) -> None:
        """Ends all of it; the listener hears of it as of any other end."""
        for choice in self.choices:
            if not choice.is_finished:
                self.end_sequence(choice.sequence_id, FinishReason.CANCELLED)

    def abandon(self) -> None:
        """Ends all of it, and the listener hears of nothing any more."""
        self.listener = _ignore
        self.cancel()

    def take(self, index: int, output: SequenceOutput) -> None:
        """Tells the listener what a sequence's output means as text."""
        choice = self.choices[index]
        if choice.is_finished:
            return
        text, reason, is_stopped = "", output.finish_reason, False
        shown = output.token_ids[:-1] if output.stop_token is not None else output.token_ids
        for place, token in enumerate(shown):
            piece = choice.stream.add(token)
            text += piece.text
            choice.token_count += 1
            if piece.is_stopped:
                is_stopped = True
                shown = shown[: place + 1]
                break
        choice.token_count += output.stop_token is not None and not is_stopped
        if is_stopped and reason is None:
            self.end_sequence(choice.sequence_id, FinishReason.STOP)
        if is_stopped:
            reason = FinishReason.STOP
        elif reason is not None:
            text += choice.stream.finish().text
        if reason is not None:
            choice.is_finished = True
            self.open_count -= 1
            self.cached_tokens = max(self.cached_tokens, output.cached_tokens)
        usage = self._usage() if self.is_finished else None
        times = output.times if reason is not None else None
        self.listener(
            TextOutput(
                index,
                text,
                shown,
                output.logprobs[: len(shown)] if is_stopped else output.logprobs,
                reason,
                output.error,
                usage,
                times,
                output.prompt_logprobs,
                output.score,
            )
        )

    def _usage(self) -> Usage:
        return Usage(self.prompt_size, sum(choice.token_count for choice in self.choices), self.cached_tokens)


def _ignore(output: TextOutput) -> None:
    """Nobody is told."""
