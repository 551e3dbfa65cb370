"""The two kinds of steps as modules whose shapes are decided by their inputs' alone, so that they can be recorded."""

from __future__ import annotations

import torch

from trireme.llm.executors.torch.decoder import Decoder, StepTokens
from trireme.llm.executors.torch.layout import ChunkRows, DecodeRows, Layout, Tile


class _Step(torch.nn.Module):
    """What both have in common. Nothing is read from the host: what a step sees follows from its positions."""

    def __init__(self, decoder: Decoder, block_size: int, dtype: torch.dtype) -> None:
        super().__init__()
        self._decoder = decoder
        self._block_size = block_size
        self._dtype = dtype

    def _masks(self, positions: torch.Tensor, key_positions: torch.Tensor) -> dict[int, torch.Tensor]:
        """By the layers' window: 0 where a row sees a key, minus infinity where it does not, `[rows, keys]`."""
        distances = positions.unsqueeze(1) - key_positions
        found = {}
        for window in self._decoder.windows:
            is_hidden = distances < 0
            if window:
                is_hidden = is_hidden | (distances >= window)
            seen = torch.zeros(distances.shape, dtype=self._dtype, device=positions.device)
            found[window] = seen.masked_fill(is_hidden, -torch.inf)
        return found

    def _results(self, step: StepTokens, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The logits of some rows, and the most likely token of each; -1 where they are infinite or not numbers."""
        logits = self._decoder.run(step, rows)(0, rows.shape[0])
        largest = logits.max(-1)  # NaN is the largest of its row
        return logits, largest.indices.masked_fill(~largest.values.isfinite(), -1)


class DecodeStep(_Step):
    """One token of each of many sequences."""

    def forward(
        self, inputs: torch.Tensor, blocks: torch.Tensor, rows: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`inputs` are tokens, positions, whether sequences are long, slots: `[4, rows]`; blocks `[rows, width]`."""
        tokens, positions, is_long, slots = inputs.unbind(0)
        count, width = blocks.shape
        key_positions = torch.arange(width * self._block_size, device=blocks.device).unsqueeze(0)
        layouts = {
            window: Layout(
                (DecodeRows(0, count, blocks.flatten(), mask[:, None, None], key_positions.expand(count, -1)),), ()
            )
            for window, mask in self._masks(positions, key_positions).items()
        }
        return self._results(StepTokens(tokens, positions, is_long, slots, layouts), rows)


class ChunkStep(_Step):
    """Several tokens of one sequence."""

    def forward(
        self, inputs: torch.Tensor, blocks: torch.Tensor, rows: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`inputs` as above, `[4, tokens]`; blocks `[width]`."""
        tokens, positions, is_long, slots = inputs.unbind(0)
        keys = blocks.shape[0] * self._block_size
        key_positions = torch.arange(keys, device=blocks.device).unsqueeze(0)
        layouts = {
            window: Layout((), (ChunkRows(blocks, 0, (Tile(0, tokens.shape[0], 0, keys, mask),)),))
            for window, mask in self._masks(positions, key_positions).items()
        }
        return self._results(StepTokens(tokens, positions, is_long, slots, layouts), rows)
