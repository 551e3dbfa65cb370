"""The executor of the first rank: it tells the others of every step, computes its own part and chooses the tokens."""

from __future__ import annotations

import shutil
from collections.abc import Sequence as Items
from dataclasses import replace
from pathlib import Path

import torch

from trireme.llm.executors.port import StepResult
from trireme.llm.executors.ranks.messages import Integers, Order, StepMessage, TableChanges, order_bytes, step_bytes
from trireme.llm.executors.ranks.part import ModelPart
from trireme.llm.executors.ranks.processes import START_S, RankProcesses
from trireme.llm.executors.torch.adapters import AdapterRows
from trireme.llm.executors.torch.executor import PagedExecutor
from trireme.llm.executors.torch.layout import Span
from trireme.llm.executors.torch.results import RowLogits
from trireme.llm.step_plan import StepPlan


class RanksExecutor(PagedExecutor):
    """All ranks compute a step at the same time; a rank that ends makes every further step fail, with its name."""

    def __init__(self, part: ModelPart, others: RankProcesses, block_count: int, rank_devices: Items[str]) -> None:
        """Meets the others, who have been told the same number of blocks."""
        self.rank_devices = tuple(rank_devices)
        decoder = part.join(block_count)
        limits = replace(part.limits, block_count=block_count)
        super().__init__(part.whole, limits, decoder, part.device, part.dtype)
        self._others = others
        self._table_changes = TableChanges(limits.max_sequences)
        self._tables_told: tuple[tuple[int, int, tuple[int, ...]], ...] = ()
        self._meeting_folder = Path(part.setup.store_file).parent
        others.lines(START_S)  # that they have met
        others.watch(decoder.abort)

    @property
    def failure(self) -> str:
        """Which rank has ended, and how; read by other threads."""
        return self._others.failure

    def submit(self, plan: StepPlan) -> StepResult:
        self._others.check()
        self._tables_told = self._table_changes.of(plan)
        try:
            result = super().submit(plan)
        except Exception as error:
            raise self._others.blamed(error) from error
        self._others.check()
        return result

    def copy_blocks(self, copies: Items[tuple[int, int]]) -> None:
        self._others.send(order_bytes(Order.COPY, [number for pair in copies for number in pair]))
        super().copy_blocks(copies)

    def close(self) -> None:
        self._others.close()
        shutil.rmtree(self._meeting_folder, ignore_errors=True)
        super().close()

    def _compute(
        self, packed: Integers, spans: Items[Span], rows: Items[int], adapters: tuple[AdapterRows, ...]
    ) -> RowLogits:
        self._others.send(step_bytes(StepMessage(packed, tuple(spans), self._tables_told, tuple(rows))))
        found = super()._compute(packed, spans, rows, adapters)

        def logits(first: int, last: int) -> torch.Tensor:
            self._others.send(order_bytes(Order.LOGITS, [first, last]))
            return found(first, last)

        return logits
