"""From the logits of a step's rows to its result: tokens, and the probabilities that were asked for."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass

import torch

from trireme.llm.executors.port import LOGPROB_ROWS, StepResult
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.request import TokenLogprobs
from trireme.llm.sampling.reports import describe, told
from trireme.llm.sampling.rows import SampledRow, fail_without_tokens, sampled_rows
from trireme.llm.sampling.torch_sampler import TorchSampler
from trireme.llm.step_plan import StepPlan

RowLogits = Callable[[int, int], torch.Tensor]
"""The logits of some of the rows that were wanted, from one of them up to another: `[rows, vocab]`."""


@dataclass(frozen=True, slots=True)
class PromptPart:
    """Tokens of a prompt whose probabilities are asked for."""

    number: int
    """Of the chunk in the plan."""
    first: int
    """Of its rows among those that are wanted."""
    following: tuple[int, ...]
    """The prompt's token behind each of the rows."""
    count: int
    """How many of the most likely tokens are named."""


@dataclass(frozen=True, slots=True)
class LogitRows:
    """The rows of a step whose logits are needed: those that tokens are chosen from, then those of prompts."""

    rows: tuple[int, ...]
    sampled: tuple[SampledRow, ...]
    """What the first of them are for."""
    prompts: tuple[PromptPart, ...]


def logit_rows(plan: StepPlan, begins: Items[int]) -> LogitRows:
    """`begins` says for each chunk of the plan which row of the step its first token is."""
    sampled: list[SampledRow] = []
    rows: list[int] = []
    for begin, chunk in zip(begins, plan.chunks, strict=True):
        own = sampled_rows(chunk)
        sampled += own
        rows += [begin + row.offset for row in own]
    prompts = []
    for number, chunk in enumerate(plan.chunks):
        following = chunk.prompt_targets
        if following:
            count = chunk.sequence.params.prompt_logprobs or 0
            prompts.append(PromptPart(number, len(rows), tuple(following), count))
            rows += range(begins[number], begins[number] + len(following))
    return LogitRows(tuple(rows), tuple(sampled), tuple(prompts))


class ResultBuilder:
    """Chooses tokens and reports of them, on the device where the logits are."""

    def __init__(self, spec: DecoderSpec, device: torch.device) -> None:
        self._device = device
        self._sampler = TorchSampler(spec, device)

    def build(
        self, plan: StepPlan, wanted: LogitRows, logits: RowLogits, likeliest: Items[int] | None = None
    ) -> StepResult:
        """`likeliest` has the most likely token of each row that one is chosen from, or -1, where that is known."""
        prompt_logprobs = {part.number: self._prompt(part, logits) for part in wanted.prompts}
        if not wanted.sampled:
            return StepResult((), {}, prompt_logprobs)
        tokens, logprobs = self._choose(logits, wanted.sampled, likeliest)
        return StepResult(tokens, logprobs, prompt_logprobs)

    def _choose(
        self, logits: RowLogits, sampled: Items[SampledRow], likeliest: Items[int] | None
    ) -> tuple[list[int], dict[int, TokenLogprobs]]:
        special = [number for number, row in enumerate(sampled) if not row.sequence.params.is_plain_greedy]
        if likeliest is not None and not special:
            return fail_without_tokens(likeliest, sampled), {}
        values = logits(0, len(sampled))
        largest = values.max(-1)  # as argmax, but in a third of the time on a CPU; NaN is the largest of a row
        for row in (~largest.values.isfinite()).nonzero().flatten().tolist():
            sampled[row].sequence.fail_without_numbers()
        tokens = largest.indices.tolist()
        if not special:
            return tokens, {}
        sequences = [sampled[number].sequence for number in special]
        positions = [sampled[number].position for number in special]
        chosen, reports = self._sampler.choose(values, special, sequences, positions)
        for row, token in zip(special, chosen.tolist(), strict=True):
            tokens[row] = token
        return tokens, reports.told()

    def _prompt(self, part: PromptPart, logits: RowLogits) -> tuple[TokenLogprobs, ...]:
        found: list[TokenLogprobs] = []
        for first in range(0, len(part.following), LOGPROB_ROWS):
            following = torch.tensor(part.following[first : first + LOGPROB_ROWS], device=self._device)
            begin = part.first + first
            found += told(describe(logits(begin, begin + len(following)), following, part.count))
        return tuple(found)
