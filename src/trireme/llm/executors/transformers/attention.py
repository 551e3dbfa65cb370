"""What transformers calls in place of its own attention: keys and values go into blocks, and are looked at there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from trireme.llm.executors.torch.attention import Attention, Scoring
from trireme.llm.executors.torch.cache import zeros
from trireme.llm.executors.torch.decoder import StepTokens


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What a layer's attention has been seen to work on."""

    head_count: int
    kv_head_count: int
    key_size: int
    value_size: int
    window: int
    """How many tokens back it looks; 0: all."""
    is_plain: bool
    """Whether nothing but a product stands between queries and the weights of values."""

    @property
    def token_items(self) -> int:
        """How many numbers of a token it keeps."""
        return self.kv_head_count * (self.key_size + self.value_size)


@dataclass(frozen=True, slots=True)
class AttentionInputs:
    """What one layer attends with in one step."""

    queries: torch.Tensor
    """`[tokens, heads, size of a key]`"""
    keys: torch.Tensor
    values: torch.Tensor
    scale: float
    window: int
    softcap: float
    sinks: torch.Tensor | None

    @property
    def shape(self) -> LayerShape:
        return LayerShape(
            self.queries.shape[1],
            self.keys.shape[1],
            self.keys.shape[2],
            self.values.shape[2],
            self.window,
            not self.softcap and self.sinks is None,
        )


class LayerPages:
    """Keys and values of all layers in blocks; layers may differ in their sizes. The block behind the last is padding.

    By layer `[blocks + 1, block size, key/value heads, size of a key or value]` each.
    """

    def __init__(
        self,
        layers: Sequence[LayerShape],
        block_count: int,
        block_size: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.block_size = block_size
        self.padding_block = block_count
        self.dtype = dtype
        shapes = [(block_count + 1, block_size, layer.kv_head_count) for layer in layers]
        sizes = list(zip(shapes, layers, strict=True))
        self._keys = [zeros((*shape, layer.key_size), device, dtype) for shape, layer in sizes]
        self._values = [zeros((*shape, layer.value_size), device, dtype) for shape, layer in sizes]

    def write(self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Puts `[tokens, key/value heads, size]` where the slots say."""
        for pages, new in ((self._keys[layer], keys), (self._values[layer], values)):
            pages.view(-1, *pages.shape[2:]).index_copy_(0, slots, new.to(pages.dtype))

    def copy(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Whole blocks, in all layers."""
        for pages in (*self._keys, *self._values):
            pages.index_copy_(0, targets, pages.index_select(0, sources))

    def clear(self, blocks: torch.Tensor) -> None:
        """Whole blocks, in all layers."""
        for pages in (*self._keys, *self._values):
            pages.index_fill_(0, blocks, 0)

    def read(self, layer: int, blocks: torch.Tensor, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of blocks, as many for each row: `[rows, positions, key/value heads, size]` each."""
        keys, values = self._keys[layer].index_select(0, blocks), self._values[layer].index_select(0, blocks)
        return keys.view(rows, -1, *keys.shape[2:]), values.view(rows, -1, *values.shape[2:])


class PagedAttention:
    """Stands in transformers' table of attention functions under a name of its own.

    Layers are told apart by the order in which they are called in a step.
    """

    def __init__(self) -> None:
        self.name = f"trireme_paged_{id(self):x}"  # the table keeps it, so that nobody else gets that number
        self.seen: list[LayerShape] = []
        """What the layers of the step under way have worked on so far."""
        self._pages: LayerPages | None = None
        self._step: StepTokens | None = None
        self._attentions: list[Attention] = []

    def use(self, pages: LayerPages | None) -> None:
        """From now on keys and values are in these blocks; None: only shapes are looked at."""
        self._pages = pages
        self._attentions = []

    def begin(self, step: StepTokens | None) -> None:
        """The calls that follow, one for each layer, belong to this step."""
        self._step = step
        self.seen = []

    def __call__(
        self,
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        scaling: float | None = None,
        sliding_window: int | None = None,
        softcap: float | None = None,
        s_aux: torch.Tensor | None = None,
        **others: Any,
    ) -> tuple[torch.Tensor, None]:
        """`[1, heads, tokens, size]` each to `[1, tokens, heads, size of a value]`."""
        queries, keys, values = (part[0].transpose(0, 1) for part in (query, key, value))
        scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
        inputs = AttentionInputs(queries, keys, values, scale, int(sliding_window or 0), float(softcap or 0), s_aux)
        layer = len(self.seen)
        self.seen.append(inputs.shape)
        if self._pages is None or self._step is None:
            return query.new_zeros(1, queries.shape[0], queries.shape[1], values.shape[2]), None
        found = self._attend(layer, inputs, self._pages, self._step)
        return found.view(1, queries.shape[0], queries.shape[1], -1).to(query.dtype), None

    def _attend(self, layer: int, inputs: AttentionInputs, pages: LayerPages, step: StepTokens) -> torch.Tensor:
        if layer == len(self._attentions):
            shape = inputs.shape
            group = shape.head_count // shape.kv_head_count
            scoring = Scoring(shape.kv_head_count, group, inputs.scale, inputs.softcap, sinks=inputs.sinks)
            self._attentions.append(Attention(scoring, pages))
        pages.write(layer, step.slots, inputs.keys, inputs.values)
        return self._attentions[layer](layer, inputs.queries.to(pages.dtype), step.layouts[inputs.window])
