"""What is told of the probabilities of tokens: computed where the logits are, and read on the host in one piece."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Items

import torch

from trireme.llm.request import Sequence, TokenLogprobs

Report = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""By row: a token's logprob, its rank, the ids of the most likely tokens, and their logprobs."""


class Reports:
    """Of rows of a step. They travel beside its tokens, in one table for rows of one kind."""

    def __init__(self) -> None:
        self._parts: list[tuple[list[int], list[int], torch.Tensor]] = []

    def add(self, rows: Iterable[int], counts: Iterable[int], report: Report) -> None:
        """Sends one on its way, for those rows; of each the `count` most likely tokens are told."""
        own, ranks, ids, values = report
        table = torch.cat([own.unsqueeze(1), ranks.unsqueeze(1), ids, values.to(torch.float64)], 1)
        if table.is_cuda:
            there = torch.empty(table.shape, dtype=table.dtype, pin_memory=True)
            table = there.copy_(table, non_blocking=True)
        self._parts.append((list(rows), list(counts), table))

    def told(self) -> dict[int, TokenLogprobs]:
        """By row, once the device has come so far."""
        found = {}
        for rows, counts, table in self._parts:
            most = table.shape[1] // 2 - 1
            for row, count, (logprob, rank, *best) in zip(rows, counts, table.tolist(), strict=True):
                pairs = zip(map(int, best[: min(count, most)]), best[most:], strict=False)
                found[row] = TokenLogprobs(logprob, int(rank), tuple(pairs))
        return found


def describe(logits: torch.Tensor, tokens: torch.Tensor, count: int) -> Report:
    """For each row of its token, with ranks from 1, and of the `count` most likely ones."""
    tokens = tokens.to(torch.int64).unsqueeze(1)
    own = logits.gather(1, tokens)
    ranks = 1 + (logits > own).sum(-1)
    sums = logits.to(torch.float64).logsumexp(-1, keepdim=True)
    best, ids = logits.topk(min(count, logits.shape[1]))
    ids, order = ids.sort(-1)
    best, order = best.gather(1, order).sort(stable=True, dim=-1, descending=True)  # of equal ones the smaller id first
    return (own - sums).squeeze(1), ranks, ids.gather(1, order), best.to(torch.float64) - sums


def told(report: Report) -> list[TokenLogprobs]:
    """A report of several rows, on the host."""
    rows = zip(*(part.tolist() for part in report), strict=True)
    return [TokenLogprobs(logprob, rank, tuple(zip(ids, values, strict=True))) for logprob, rank, ids, values in rows]


def candidate_counts(sequences: Items[Sequence]) -> list[int]:
    """How many tokens each beam may go on with."""
    return [max(one.candidate_count, one.params.logprobs or 0) for one in sequences]


def likeliest(values: torch.Tensor, count: int) -> Report:
    """The next tokens of beams, by their log probabilities."""
    best, ids = values.topk(min(count, values.shape[1]))
    return best[:, 0].to(torch.float64), torch.ones_like(ids[:, 0]), ids, best
