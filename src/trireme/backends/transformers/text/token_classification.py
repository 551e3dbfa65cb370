"""Texts to the entities in them; the library's own pipeline puts tokens together to words."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trireme.backends.compiled.batching import RequestError
from trireme.backends.transformers.items import Item, Outputs, text_array
from trireme.backends.transformers.loading import Loaded
from trireme.backends.transformers.text.text_batch import TextBatches, TokenIds

_STRATEGIES = ("none", "simple", "first", "average", "max")


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    ids: TokenIds
    offsets: list[tuple[int, int]] | None
    special_mask: list[int]
    strategy: str


class TokenClassification:
    """A model with a head for tokens."""

    def __init__(self, loaded: Loaded) -> None:
        self._torch = loaded.torch
        self._model = loaded.model
        self._tokenizer = loaded.tokenizer
        self._texts = TextBatches(loaded)
        pipelines = loaded.transformers.pipelines
        self._pipeline = pipelines.TokenClassificationPipeline(model=loaded.model, tokenizer=loaded.tokenizer)
        self._strategies = pipelines.token_classification.AggregationStrategy

    def prepare(self, item: Item) -> _Sentence:
        """Takes `text`."""
        strategy = str(item.options.get("aggregation_strategy", "none")).lower()
        if strategy not in _STRATEGIES:
            raise RequestError(f"'aggregation_strategy' must be one of {', '.join(_STRATEGIES)}, found '{strategy}'")
        text = item.text("text")
        ids, extra = self._texts.encode_with(
            text,
            truncation=item.options.get("truncation"),
            return_special_tokens_mask=True,
            return_offsets_mapping=self._tokenizer.is_fast,
        )
        return _Sentence(text, ids, extra.get("offset_mapping"), extra["special_tokens_mask"], strategy)

    def key(self, prepared: _Sentence) -> Hashable:
        """Any texts, unless padding would be seen."""
        return self._texts.key([prepared.ids])

    def run(self, prepared: Sequence[_Sentence]) -> list[Outputs]:
        """The entities of each text, in its order."""
        logits = self._model(**self._texts.pad([entry.ids for entry in prepared])).logits.float().cpu()
        return [self._entities(entry, row) for entry, row in zip(prepared, logits, strict=False)]

    def _entities(self, entry: _Sentence, logits: Any) -> Outputs:
        count = len(entry.ids["input_ids"])
        chunk = {
            "logits": logits[None, :count],
            "sentence": entry.text,
            "input_ids": self._torch.tensor([entry.ids["input_ids"]]),
            "offset_mapping": None if entry.offsets is None else [entry.offsets],
            "special_tokens_mask": self._torch.tensor([entry.special_mask]),
        }
        found = self._pipeline.postprocess([chunk], aggregation_strategy=self._strategies(entry.strategy))
        return {
            "entity": text_array([str(entity.get("entity_group", entity.get("entity"))) for entity in found]),
            "score": np.array([entity["score"] for entity in found], dtype=np.float32),
            "word": text_array([str(entity["word"]) for entity in found]),
            "start": np.array([_place(entity["start"]) for entity in found], dtype=np.int32),
            "end": np.array([_place(entity["end"]) for entity in found], dtype=np.int32),
        }


def _place(index: int | None) -> int:
    """A tokenizer that is not of the fast kind does not know; there is no number for that on the wire but -1."""
    return -1 if index is None else int(index)
