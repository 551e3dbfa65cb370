"""Texts with a gap to the words that may fill it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trireme.backends.compiled.batching import RequestError
from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.transformers.items import Item, Outputs, text_array
from trireme.backends.transformers.loading import Loaded
from trireme.backends.transformers.text.text_batch import TextBatches, TokenIds

_USUAL_MASKS = ("[MASK]", "<mask>")
_TOP_COUNT = 5


@dataclass(frozen=True, slots=True)
class _Gaps:
    ids: TokenIds
    places: list[int]
    top_count: int


class FillMask:
    """A masked language model."""

    def __init__(self, loaded: Loaded) -> None:
        self._model = loaded.model
        self._tokenizer = loaded.tokenizer
        self._texts = TextBatches(loaded)
        if self._tokenizer.mask_token is None:
            raise ModelLoadError(
                f"the tokenizer of model '{loaded.settings.name}' ('{loaded.source}') has no mask token, which "
                "fill-mask needs"
            )

    def prepare(self, item: Item) -> _Gaps:
        """Takes `text` with the tokenizer's mask token, or with one of the usual ones in its place."""
        text, mask = item.text("text"), self._tokenizer.mask_token
        if mask not in text:
            for other in _USUAL_MASKS:
                text = text.replace(other, mask)
        ids = self._texts.encode(text, truncation=item.options.get("truncation"))
        places = [index for index, token in enumerate(ids["input_ids"]) if token == self._tokenizer.mask_token_id]
        if not places:
            raise RequestError(f"input 'text' has no gap to fill: write {mask} where the word is missing")
        top_count = item.options.get("top_k", _TOP_COUNT)
        if top_count < 1:
            raise RequestError(f"'top_k' must be at least 1, found {top_count}")
        return _Gaps(ids, places, top_count)

    def key(self, prepared: _Gaps) -> Hashable:
        """Any texts, unless padding would be seen."""
        return self._texts.key([prepared.ids])

    def run(self, prepared: Sequence[_Gaps]) -> list[Outputs]:
        """The likeliest words for each gap of each text: a row for a gap, a column for a word."""
        logits = self._model(**self._texts.pad([entry.ids for entry in prepared])).logits
        return [self._words(entry, row) for entry, row in zip(prepared, logits, strict=False)]

    def _words(self, entry: _Gaps, logits: Any) -> Outputs:
        scores = logits[entry.places].float().softmax(dim=-1)
        values, tokens = scores.topk(min(entry.top_count, scores.shape[-1]))
        shape = tuple(values.shape)
        places = np.repeat(entry.places, shape[1])
        flat = tokens.flatten().tolist()
        return {
            "token_str": text_array([self._tokenizer.decode([token]) for token in flat]).reshape(shape),
            "score": values.cpu().numpy().astype(np.float32),
            "token": tokens.cpu().numpy().astype(np.int32),
            "sequence": text_array(
                [self._filled(entry, int(place), token) for place, token in zip(places, flat, strict=True)]
            ).reshape(shape),
        }

    def _filled(self, entry: _Gaps, place: int, token: int) -> str:
        """The text with this gap filled; further gaps stay visible."""
        ids = list(entry.ids["input_ids"])
        ids[place] = token
        return str(self._tokenizer.decode(ids, skip_special_tokens=len(entry.places) == 1))
