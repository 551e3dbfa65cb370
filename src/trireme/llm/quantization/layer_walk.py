"""Takes calibration texts through a model layer by layer: one layer's weights are in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch.nn import functional

from trireme.llm.executors.torch.attention import scoring_of
from trireme.llm.executors.torch.cache import BlockTables, PagedCache
from trireme.llm.executors.torch.decoder import Decoder, StepTokens
from trireme.llm.executors.torch.layout import LayoutBuilder, Span
from trireme.llm.executors.torch.weights import LayerWeights, Linear, take_over, weight_collector
from trireme.llm.models.spec import DecoderSpec

Record = Callable[[str, torch.Tensor], None]
"""Of a matrix by its name in the layer: the rows that it is multiplied with."""


class LayerWalk:
    """Hidden states of all texts, which stand before the layer that comes next."""

    def __init__(
        self,
        spec: DecoderSpec,
        outside: Mapping[str, torch.Tensor],
        sequences: Sequence[Sequence[int]],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        """`outside` has the tensors that stand before the layers."""
        self._spec, self._device, self._dtype = spec, device, dtype
        longest = max(len(sequence) for sequence in sequences)
        taken = take_over(outside.items(), device, dtype)
        without_layers = weight_collector(replace(spec, layer_count=0, is_tied=True), taken).decoder()
        self._cache = PagedCache(spec, longest, 1, device, dtype)
        self._tables = BlockTables(1, longest)
        self._tables.of(0)[:] = range(longest)
        self._decoder = Decoder(spec, without_layers, self._cache, scoring_of(spec, device))
        self._steps: dict[int, StepTokens] = {}
        self._lengths = [len(sequence) for sequence in sequences]
        with torch.inference_mode():
            self._hidden = [self._decoder.embed(self._step(sequence)) for sequence in sequences]

    def layer(
        self, number: int, tensors: Mapping[str, torch.Tensor], record: Record | None = None, *, advances: bool
    ) -> None:
        """Takes all texts through a layer; `advances`: what comes out stands before the next."""
        with torch.inference_mode():
            weights = weight_collector(self._spec, take_over(tensors.items(), self._device, self._dtype)).layer("")
            if record is not None:
                weights = _recording(weights, record)
            for index, length in enumerate(self._lengths):
                step = self._step([0] * length)
                angles = self._decoder.angles(step)
                found = self._decoder.layer(number, weights, self._hidden[index], step, angles)
                if advances:
                    self._hidden[index] = found

    def _step(self, tokens: Sequence[int]) -> StepTokens:
        """The whole of a sequence, alone in the cache; what does not depend on its tokens is built once."""
        length = len(tokens)
        if length not in self._steps:
            builder = LayoutBuilder(self._cache, self._tables, self._device, self._dtype, is_causal_known=False)
            windows = {self._spec.window_of(layer) for layer in range(self._spec.layer_count)}
            layouts = {window: builder.build([], [Span(0, length, 0, 0)], window) for window in windows}
            places = torch.arange(length, device=self._device)
            short = self._spec.rope.short_positions if self._spec.rope is not None else 0
            is_long = torch.full_like(places, 0 < short < length)
            self._steps[length] = StepTokens(places, places, is_long, places, layouts)
        return replace(self._steps[length], tokens=torch.tensor(tokens, device=self._device))


@dataclass(frozen=True, slots=True)
class _RecordingLinear:
    """Multiplies as a Linear does, and tells with what."""

    linear: Linear
    record: Callable[[torch.Tensor], None]

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        self.record(rows)
        return functional.linear(rows, self.linear.matrix, self.linear.bias)


def _recording(layer: LayerWeights, record: Record) -> LayerWeights:
    def recording(name: str, linear: Linear) -> Linear:
        return cast(Linear, _RecordingLinear(linear, lambda rows: record(name, rows)))

    return replace(
        layer,
        qkv=recording("qkv", layer.qkv),
        o=recording("o", layer.o),
        up=None if layer.up is None else recording("up", layer.up),
        down=None if layer.down is None else recording("down", layer.down),
    )
