"""From the logits of a step's rows to its result: tokens, and the probabilities that were asked for."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass

import torch

from trireme.llm.executors.port import LOGPROB_ROWS, StepResult
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.request import TokenLogprobs
from trireme.llm.sampling.torch_sampler import TorchSampler, describe, told, told_one
from trireme.llm.scheduler import Chunk, StepPlan

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
class WantedRows:
    """The rows of a step whose logits are needed: one for each chunk that samples, then those of prompts."""

    rows: tuple[int, ...]
    sampling: tuple[int, ...]
    """The numbers of those chunks."""
    prompts: tuple[PromptPart, ...]


def wanted_rows(plan: StepPlan, begins: Items[int]) -> WantedRows:
    """`begins` says for each chunk of the plan which row of the step its first token is."""
    sampling = tuple(number for number, chunk in enumerate(plan.chunks) if chunk.samples)
    rows = [begins[number] + plan.chunks[number].count - 1 for number in sampling]
    prompts = []
    for number, chunk in enumerate(plan.chunks):
        following = chunk.prompt_targets
        if following:
            count = chunk.sequence.params.prompt_logprobs or 0
            prompts.append(PromptPart(number, len(rows), tuple(following), count))
            rows += range(begins[number], begins[number] + len(following))
    return WantedRows(tuple(rows), sampling, tuple(prompts))


class ResultBuilder:
    """Chooses tokens and reports of them, on the device where the logits are."""

    def __init__(self, spec: DecoderSpec, device: torch.device) -> None:
        self._device = device
        self._sampler = TorchSampler(spec, device)

    def build(
        self, plan: StepPlan, wanted: WantedRows, logits: RowLogits, likeliest: Items[int] | None = None
    ) -> StepResult:
        """`likeliest` has each sampling chunk's most likely token, where that is known."""
        prompt_logprobs = {part.number: self._prompt(part, logits) for part in wanted.prompts}
        if not wanted.sampling:
            return StepResult((), {}, prompt_logprobs)
        chunks = [plan.chunks[number] for number in wanted.sampling]
        tokens, logprobs = self._choose(logits, chunks, likeliest)
        return StepResult(tokens, logprobs, prompt_logprobs)

    def _choose(
        self, logits: RowLogits, chunks: list[Chunk], likeliest: Items[int] | None
    ) -> tuple[list[int], dict[int, TokenLogprobs]]:
        special = [row for row, chunk in enumerate(chunks) if not chunk.sequence.params.is_plain_greedy]
        if likeliest is not None and not special:
            return list(likeliest), {}
        values = logits(0, len(chunks))
        if len(special) == len(chunks):
            tokens = [0] * len(chunks)
        else:
            tokens = values.max(-1).indices.tolist()  # as argmax, but in a third of the time on a CPU
        if not special:
            return tokens, {}
        sequences = [chunks[row].sequence for row in special]
        positions = [chunks[row].start + chunks[row].count for row in special]
        chosen, reports = self._sampler.choose(values, special, sequences, positions)
        for row, token in zip(special, chosen.tolist(), strict=True):
            tokens[row] = token
        return tokens, {row: told_one(report) for row, report in reports.items()}

    def _prompt(self, part: PromptPart, logits: RowLogits) -> tuple[TokenLogprobs, ...]:
        found: list[TokenLogprobs] = []
        for first in range(0, len(part.following), LOGPROB_ROWS):
            following = torch.tensor(part.following[first : first + LOGPROB_ROWS], device=self._device)
            begin = part.first + first
            found += told(describe(logits(begin, begin + len(following)), following, part.count))
        return tuple(found)
