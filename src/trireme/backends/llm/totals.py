"""How many tokens an answer has and how likely they are, as flags of requests ask for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from trireme.backends.python.pb_utils.tensor import Tensor
from trireme.backends.served_engine.returned import NUMBERS, number_tensors
from trireme.llm.generation import TextOutput


class Totals:
    """Of one request; counts are those of a response, sums of log probabilities those since the beginning."""

    def __init__(self, wanted: Collection[str], input_count: int, choice_count: int) -> None:
        self._wanted = frozenset(wanted) & NUMBERS
        self._input_count = input_count
        self._logprobs = [0.0] * choice_count
        self._told_count = 0

    def tensors(self, groups: Sequence[Sequence[TextOutput]]) -> list[Tensor]:
        """For the outputs of each choice that a response tells of."""
        if not self._wanted:
            return []
        counts = [self._count(group) for group in groups]
        sums = [self._sum(group) for group in groups]
        return number_tensors(self._wanted, self._input_count, counts, sums)

    def _count(self, group: Sequence[TextOutput]) -> int:
        """Tokens, with the one that ended the text and is not shown, where it is known whose that is."""
        count = sum(len(output.token_ids) for output in group)
        usage = group[-1].usage if group else None
        if usage is not None and len(self._logprobs) == 1:
            count = max(count, usage.completion_tokens - self._told_count)
        self._told_count += count
        return count

    def _sum(self, group: Sequence[TextOutput]) -> float:
        if not group:
            return 0.0
        index = group[0].index
        self._logprobs[index] += sum(one.logprob for output in group for one in output.logprobs)
        return self._logprobs[index]
