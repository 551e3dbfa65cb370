"""Texts to labels: a classifier's own, or any that a request brings."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trireme.backends.compiled.batching import RequestError
from trireme.backends.transformers.candidate_labels import candidate_labels, hypotheses
from trireme.backends.transformers.items import Item, Outputs, text_array
from trireme.backends.transformers.labels import best_labels, check_label_options, softmax
from trireme.backends.transformers.loading import Loaded
from trireme.backends.transformers.runner import check_clients
from trireme.backends.transformers.text.text_batch import TextBatches, TokenIds

_TEMPLATE = "This example is {}."


class _Classifier:
    """Logits for rows of token ids."""

    def __init__(self, loaded: Loaded) -> None:
        self._model = loaded.model
        self._config = loaded.model.config
        self._texts = TextBatches(loaded)
        if self._config.get_text_config().pad_token_id is None:  # decoders look for the last token that is no padding
            self._config.get_text_config().pad_token_id = self._texts.padding_id

    def _logits(self, rows: Sequence[TokenIds], items: Sequence[Item]) -> Any:
        found = []
        for batch, count in self._texts.batches(rows, len(items)):
            check_clients(items)
            found.append(self._model(**batch).logits[:count].float().cpu().numpy())
        return np.concatenate(found)


@dataclass(frozen=True, slots=True)
class _Text:
    ids: TokenIds
    item: Item


class TextClassification(_Classifier):
    """A model with a head for sequences."""

    def prepare(self, item: Item) -> _Text:
        """Takes `text`, and `text_pair` where the model compares two."""
        check_label_options(item.options)
        pair = item.text("text_pair") if "text_pair" in item.inputs else None
        ids = self._texts.encode(item.text("text"), pair, truncation=item.options.get("truncation"))
        return _Text(ids, item)

    def key(self, prepared: _Text) -> Hashable:
        """Any texts, unless padding would be seen."""
        return self._texts.key([prepared.ids])

    def run(self, prepared: Sequence[_Text]) -> list[Outputs]:
        """The best labels of each text."""
        logits = self._logits([entry.ids for entry in prepared], [entry.item for entry in prepared])
        return [
            best_labels(row, self._config, entry.item.options, 1, is_text=True)
            for row, entry in zip(logits, prepared, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class _Hypotheses:
    item: Item
    labels: Sequence[str]
    rows: Sequence[TokenIds]
    is_multi_label: bool


class ZeroShotClassification(_Classifier):
    """A model of entailment: each candidate label becomes a hypothesis about the text."""

    def __init__(self, loaded: Loaded) -> None:
        super().__init__(loaded)
        found = [index for label, index in self._config.label2id.items() if label.lower().startswith("entail")]
        self._entailment = found[0] if found else -1
        self._contradiction = -1 if self._entailment == 0 else 0

    def prepare(self, item: Item) -> _Hypotheses:
        """Takes `text`, and `candidate_labels` as texts or as one text with commas."""
        labels = candidate_labels(item.options)
        claims = hypotheses(labels, item.options, _TEMPLATE)
        text = item.text("text")
        truncation = "only_first" if item.options.get("truncation", True) else False
        rows = [self._encode(text, claim, truncation) for claim in claims]
        return _Hypotheses(item, labels, rows, item.options.get("multi_label", False) or len(labels) == 1)

    def _encode(self, text: str, claim: str, truncation: str | bool) -> TokenIds:
        """Raises RequestError where not even the label fits, since only of the text the end is cut off."""
        try:
            return self._texts.encode(text, claim, truncation=truncation)
        except RequestError:
            raise
        except Exception as error:  # the tokenizer's class for whatever it cannot do
            raise RequestError(
                f"one of the 'candidate_labels' leaves no room for the text in the {self._texts.token_limit} tokens "
                f"that the model takes; shorten the label ({error})"
            ) from error

    def key(self, prepared: _Hypotheses) -> Hashable:
        """Any texts with any labels, unless padding would be seen."""
        return self._texts.key(prepared.rows)

    def run(self, prepared: Sequence[_Hypotheses]) -> list[Outputs]:
        """The labels of each text, the most likely first."""
        rows = [row for entry in prepared for row in entry.rows]
        logits = self._logits(rows, [entry.item for entry in prepared])
        answers, start = [], 0
        for entry in prepared:
            answers.append(self._ranked(entry, logits[start : start + len(entry.rows)]))
            start += len(entry.rows)
        return answers

    def _ranked(self, entry: _Hypotheses, logits: Any) -> Outputs:
        if entry.is_multi_label:
            scores = softmax(logits[:, [self._contradiction, self._entailment]])[:, 1]
        else:
            scores = softmax(logits[:, self._entailment])
        order = np.argsort(scores)[::-1]
        return {
            "label": text_array([entry.labels[index] for index in order]),
            "score": scores[order].astype(np.float32),
        }
