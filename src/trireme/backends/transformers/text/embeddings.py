"""Texts to vectors: one for each token, or one for the whole."""

from __future__ import annotations

import json
import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trireme.backends.compiled.batching import RequestError
from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.transformers.items import Item, Outputs
from trireme.backends.transformers.loading import Loaded
from trireme.backends.transformers.source import side_file
from trireme.backends.transformers.text.text_batch import TextBatches, TokenIds
from trireme.core.reading.json_levels import read_json

_POOLINGS = ("mean", "cls", "max", "last")


@dataclass(frozen=True, slots=True)
class _Text:
    ids: TokenIds
    item: Item


class FeatureExtraction:
    """The model's last hidden states."""

    def __init__(self, loaded: Loaded) -> None:
        self._torch = loaded.torch
        self._model = loaded.model
        self._texts = TextBatches(loaded)

    def prepare(self, item: Item) -> _Text:
        """Takes `text`."""
        return _Text(self._texts.encode(item.text("text"), truncation=item.options.get("truncation")), item)

    def key(self, prepared: _Text) -> Hashable:
        """Any texts, unless padding would be seen."""
        return self._texts.key([prepared.ids])

    def run(self, prepared: Sequence[_Text]) -> list[Outputs]:
        """A row for each token of a text, the special ones too."""
        states = self._model(**self._texts.pad([entry.ids for entry in prepared]))[0].float().cpu().numpy()
        return [
            {"features": np.ascontiguousarray(row[: len(entry.ids["input_ids"])], dtype=np.float32)}
            for entry, row in zip(prepared, states, strict=False)
        ]


class SentenceEmbedding(FeatureExtraction):
    """One vector for a text, made as the model's files say where the sentence-transformers library wrote them."""

    def __init__(self, loaded: Loaded) -> None:
        super().__init__(loaded)
        self._pooling, self._is_normalized, limit = _read_modules(loaded)
        if limit is not None and (self._texts.token_limit is None or limit < self._texts.token_limit):
            self._texts.token_limit = limit

    def prepare(self, item: Item) -> _Text:
        """Takes `text`, and cuts it to what the model takes, as is usual for embeddings."""
        pooling = item.options.get("pooling", self._pooling)
        if pooling not in _POOLINGS:
            raise RequestError(f"'pooling' must be one of {', '.join(_POOLINGS)}, found '{pooling}'")
        return _Text(self._texts.encode(item.text("text"), truncation=item.options.get("truncation", True)), item)

    def key(self, prepared: _Text) -> Hashable:
        """Any texts that are pooled alike."""
        return (self._pooling_of(prepared), super().key(prepared))

    def run(self, prepared: Sequence[_Text]) -> list[Outputs]:
        """The vector of each text."""
        batch = self._texts.pad([entry.ids for entry in prepared])
        states = self._model(**batch)[0].float()
        mask = batch.get("attention_mask", self._torch.ones_like(batch["input_ids"]))
        pooled = self._pooled(self._pooling_of(prepared[0]), states, mask)
        normalized = self._torch.nn.functional.normalize(pooled, dim=-1)
        answers: list[Outputs] = []
        for index, entry in enumerate(prepared):
            is_normalized = entry.item.options.get("normalize", self._is_normalized)
            vector = (normalized if is_normalized else pooled)[index]
            answers.append({"embedding": vector.cpu().numpy().astype(np.float32)})
        return answers

    def _pooling_of(self, prepared: _Text) -> str:
        return str(prepared.item.options.get("pooling", self._pooling))

    def _pooled(self, pooling: str, states: Any, mask: Any) -> Any:
        if pooling == "cls":
            return states[:, 0]
        if pooling == "last":
            last = mask.sum(dim=1) - 1
            return states[self._torch.arange(len(states), device=states.device), last]
        weights = mask[..., None].to(states.dtype)
        if pooling == "max":
            return states.masked_fill(weights == 0, float("-inf")).max(dim=1).values
        return (states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-9)


def _read_modules(loaded: Loaded) -> tuple[str, bool, int | None]:
    """Pooling, whether vectors get length 1, and the limit of tokens; mean pooling where the files do not say."""
    modules = _read_json(loaded, "modules.json")
    if modules is None:
        return "mean", False, None
    pooling, is_normalized = "mean", False
    for module in modules:
        kind = module["type"].rpartition(".")[2]
        if kind == "Pooling":
            pooling = _pooling_of(_read_json(loaded, os.path.join(module["path"], "config.json")) or {}, loaded)
        elif kind == "Normalize":
            is_normalized = True
        elif kind != "Transformer":
            raise ModelLoadError(
                f"model '{loaded.settings.name}' ('{loaded.source}') has a module '{module['type']}' after its "
                "transformer, which is not served; use a model of the python backend with sentence-transformers"
            )
    limit = (_read_json(loaded, "sentence_bert_config.json") or {}).get("max_seq_length")
    return pooling, is_normalized, limit


def _pooling_of(config: Mapping[str, Any], loaded: Loaded) -> str:
    keys = {"mean_tokens": "mean", "cls_token": "cls", "max_tokens": "max", "lasttoken": "last"}
    chosen = [name for key, name in keys.items() if config.get(f"pooling_mode_{key}")]
    named = config.get("pooling_mode")
    if not chosen and isinstance(named, str):
        chosen = [{"lasttoken": "last"}.get(named, named)]
    if len(chosen) != 1 or chosen[0] not in _POOLINGS:
        raise ModelLoadError(
            f"the pooling of model '{loaded.settings.name}' ('{loaded.source}') is not one of {', '.join(_POOLINGS)}: "
            f"{json.dumps(config)}"
        )
    return chosen[0]


def _read_json(loaded: Loaded, name: str) -> Any:
    path = side_file(loaded.settings, loaded.source, name)
    if path is None:
        return None
    with open(path, encoding="utf-8") as file:
        return read_json(file.read())
