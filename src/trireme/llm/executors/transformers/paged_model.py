"""A model of transformers as a flat batch over our blocks, where its attention can be replaced."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from trireme.llm.executors.limits import limits_for
from trireme.llm.executors.torch.decoder import StepTokens
from trireme.llm.executors.torch.executor import PagedExecutor
from trireme.llm.executors.torch.memory import cache_bytes
from trireme.llm.executors.torch.results import RowLogits
from trireme.llm.executors.transformers.attention import LayerPages, LayerShape, PagedAttention
from trireme.llm.executors.transformers.model_code import ModelCode
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.options import EngineOptions
from trireme.llm.step_plan import SchedulerLimits

_KNOWN_LAYERS = {"full_attention", "sliding_attention"}
_BY_LENGTH = {"dynamic", "longrope"}
"""Rotations that depend on how long a sequence is, and so on whom it shares a batch with."""


class NotPagedError(Exception):
    """Why a model's keys and values cannot be in our blocks."""


class PagedCode:
    """A model's code with its attention replaced."""

    def __init__(self, code: ModelCode) -> None:
        """Raises NotPagedError where that cannot be done; the model is then as it was."""
        _check_forward(code)
        self.code = code
        self._attention = PagedAttention()
        self._original = code.model.config._attn_implementation
        self._register()
        try:
            self._replace(self._attention.name)
            self.layers = self._look_at_layers()
            _check_windows(code.config, self.layers)
        except Exception as error:
            self.restore()
            if isinstance(error, NotPagedError):
                raise
            raise failed(error) from error

    @contextmanager
    def original(self) -> Iterator[None]:
        """The model as it was."""
        self._replace(self._original)
        try:
            yield
        finally:
            self._replace(self._attention.name)

    def restore(self) -> None:
        """For good."""
        self._attention.use(None)
        self._replace(self._original)

    def executor(self, spec: DecoderSpec, options: EngineOptions) -> TransformersExecutor:
        """With a cache of its own; an executor that was made before is of no use any more."""
        device, dtype = self.code.device, self.code.dtype
        items = sum(layer.token_items for layer in self.layers)
        limits = limits_for(spec, options, cache_bytes(device, options), dtype.itemsize, items)
        with torch.inference_mode():
            pages = LayerPages(self.layers, limits.block_count, limits.block_size, device, dtype)
        self._attention.use(pages)
        return TransformersExecutor(spec, limits, PagedModel(self.code, self._attention, self.layers, pages))

    def _register(self) -> None:
        transformers: Any = importlib.import_module("transformers")
        interface = getattr(transformers, "AttentionInterface", None)
        model = self.code.model
        if interface is None or not hasattr(model, "set_attn_implementation"):
            raise NotPagedError(f"transformers {transformers.__version__} has no attention to be replaced")
        if not model._can_set_attn_implementation():
            raise NotPagedError("its attention does not go through transformers' attention interface")
        interface.register(self._attention.name, self._attention)

    def _replace(self, name: str) -> None:
        self.code.model.set_attn_implementation(name)

    def _look_at_layers(self) -> tuple[LayerShape, ...]:
        tokens = torch.zeros(2, dtype=torch.int64, device=self.code.device)
        self._attention.use(None)
        self._attention.begin(None)
        with torch.inference_mode():
            self.code.call(tokens, tokens, position_ids=torch.arange(2, device=tokens.device)[None], use_cache=False)
        layers = tuple(self._attention.seen)
        count = getattr(self.code.config, "num_hidden_layers", len(layers))
        if len(layers) != count:
            raise NotPagedError(f"its {count} layers call transformers' attention interface {len(layers)} times")
        return layers


class PagedModel:
    """What the executor calls."""

    def __init__(
        self, code: ModelCode, attention: PagedAttention, layers: Iterable[LayerShape], pages: LayerPages
    ) -> None:
        self.code = code
        self._attention = attention
        self.pages = pages
        self.windows = frozenset(layer.window for layer in layers)
        self.is_fused = all(layer.is_plain for layer in layers)

    def run(self, step: StepTokens, rows: torch.Tensor) -> RowLogits:
        """All tokens as one row; nothing but attention looks from one to another."""
        self._attention.begin(step)
        inputs = {"position_ids": step.positions.unsqueeze(0), "use_cache": False}
        logits, _ = self.code.call(step.tokens, rows, **inputs)
        return lambda first, last: logits[first:last]

    def close(self) -> None:
        """The table of transformers' attention functions keeps the attention, but not its blocks."""
        self._attention.use(None)
        self._attention.begin(None)


class TransformersExecutor(PagedExecutor):
    """Runs such a model."""

    def __init__(self, spec: DecoderSpec, limits: SchedulerLimits, model: PagedModel) -> None:
        super().__init__(spec, limits, model, model.code.device, model.code.dtype)
        self._paged: PagedModel | None = model

    def close(self) -> None:
        if self._paged is not None:
            self._paged.close()
        self._paged = None
        super().close()


def failed(error: Exception) -> NotPagedError:
    """What is to be said of a model that does not bear it."""
    reason = (str(error).strip() or "no reason given").splitlines()[0]
    return NotPagedError(f"with its attention replaced it fails: {type(error).__name__}: {reason}")


def _check_forward(code: ModelCode) -> None:
    if "position_ids" not in code.arguments:
        raise NotPagedError("it takes no positions of tokens")
    others = set(getattr(code.config, "layer_types", None) or ()) - _KNOWN_LAYERS
    if others:
        raise NotPagedError(f"it has layers of the kind {', '.join(sorted(map(str, others)))}")
    if depends_on_length(code.config):
        raise NotPagedError("its rotation depends on the length of a sequence")


def depends_on_length(config: Any) -> bool:
    """Whether positions are rotated in a way that changes as a sequence grows."""
    return any(kind in _BY_LENGTH for kind in rope_kinds(config))


def rope_kinds(config: Any) -> set[str]:
    """The kinds of rotation that a configuration names."""
    found: set[str] = set()
    for name in ("rope_parameters", "rope_scaling"):
        given = getattr(config, name, None)
        if isinstance(given, Mapping):
            for one in (given, *(value for value in given.values() if isinstance(value, Mapping))):
                found |= {str(one[key]) for key in ("rope_type", "type") if key in one}
    return found


def _check_windows(config: Any, layers: tuple[LayerShape, ...]) -> None:
    """That a window which the configuration asks for is one that the attention function is told of."""
    kinds = getattr(config, "layer_types", None)
    size = getattr(config, "sliding_window", None)
    if kinds and len(kinds) == len(layers):
        wrong = any(
            (kind == "sliding_attention") != bool(layer.window) for kind, layer in zip(kinds, layers, strict=True)
        )
    else:
        wrong = bool(size) and not any(layer.window for layer in layers)
    if wrong:
        raise NotPagedError("its attention function is not told of the window")
