"""Images and sounds to labels that a request brings, by models with an encoder for each kind of input."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trireme.backends.compiled.model_load import require
from trireme.backends.transformers.candidate_labels import candidate_labels, hypotheses
from trireme.backends.transformers.image.reading import processed_images, read_image
from trireme.backends.transformers.items import Item, Outputs, text_array
from trireme.backends.transformers.labels import applied
from trireme.backends.transformers.loading import Loaded
from trireme.backends.transformers.multimodal.features import joined, shapes
from trireme.backends.transformers.sound.audio import read_audio
from trireme.backends.transformers.text.text_batch import TextBatches, TokenIds

_SIGLIP_TOKENS = 64  # its texts are padded to so many, and it was trained to see the padding
_MOST_TEXTS = 512
_SEED = 0


@dataclass(frozen=True, slots=True)
class _Candidates:
    features: Mapping[str, Any]
    labels: Sequence[str]
    rows: Mapping[str, TokenIds]
    """By the sentences, which stand beside the labels where no label is there twice."""
    sentences: Sequence[str]


class _TwoEncoders(ABC):
    """Compares features with sentences; the sentences of all items are encoded once, in one batch."""

    _template: str
    _logits_name: str

    def __init__(self, loaded: Loaded) -> None:
        self._torch = loaded.torch
        self._model = loaded.model
        self._tokenizer = loaded.tokenizer
        self._processor = loaded.processor
        self._device = loaded.device
        self._texts = TextBatches(loaded)
        self._is_siglip = "siglip" in loaded.model.config.model_type

    def prepare(self, item: Item) -> _Candidates:
        """Takes `candidate_labels` beside what is to be labelled."""
        labels = candidate_labels(item.options)
        sentences = hypotheses(labels, item.options, self._template)
        rows = {sentence: self._encode(sentence, item.options) for sentence in sentences}
        return _Candidates(self._features(item), labels, rows, sentences)

    def key(self, prepared: _Candidates) -> Hashable:
        """Features of one shape, with any labels unless padding would be seen."""
        return shapes(prepared.features), self._texts.key(list(prepared.rows.values()))

    def run(self, prepared: Sequence[_Candidates]) -> list[Outputs]:
        """The labels of each item, the likeliest first."""
        return [answer for part in _parts(prepared) for answer in self._run_part(part)]

    def _run_part(self, prepared: Sequence[_Candidates]) -> list[Outputs]:
        rows: dict[str, TokenIds] = {}
        for entry in prepared:
            rows |= entry.rows
        places = {sentence: index for index, sentence in enumerate(rows)}
        batch = joined(self._torch, [entry.features for entry in prepared], self._model)
        outputs = self._model(**batch, **self._texts.pad(list(rows.values())))
        logits = getattr(outputs, self._logits_name).float().cpu().numpy()
        function = "sigmoid" if self._is_siglip else "softmax"
        answers: list[Outputs] = []
        for entry, row in zip(prepared, logits, strict=True):
            scores = applied(function, row[[places[sentence] for sentence in entry.sentences]])
            order = np.argsort(-scores, kind="stable")
            answers.append(
                {
                    "label": text_array([entry.labels[index] for index in order]),
                    "score": scores[order].astype(np.float32),
                }
            )
        return answers

    def _encode(self, sentence: str, options: Mapping[str, Any]) -> TokenIds:
        if not self._is_siglip:
            return self._texts.encode(sentence, truncation=options.get("truncation"))
        width = min(_SIGLIP_TOKENS, self._texts.token_limit or _SIGLIP_TOKENS)
        encoded = self._tokenizer(sentence, padding="max_length", max_length=width, truncation=True)
        return self._texts.chosen(encoded)

    @abstractmethod
    def _features(self, item: Item) -> Mapping[str, Any]:
        """What the model takes of the image or the sound; raises RequestError where there is none."""


class ZeroShotImageClassification(_TwoEncoders):
    """A model such as CLIP or SigLIP."""

    _template = "This is a photo of {}."
    _logits_name = "logits_per_image"

    def __init__(self, loaded: Loaded) -> None:
        require("PIL", "transformers")
        super().__init__(loaded)

    def _features(self, item: Item) -> Mapping[str, Any]:
        image = read_image(item.inputs.get("image"))
        return processed_images(self._processor, [image])


class ZeroShotAudioClassification(_TwoEncoders):
    """A model such as CLAP."""

    _template = "This is a sound of {}."
    _logits_name = "logits_per_audio"

    def _features(self, item: Item) -> Mapping[str, Any]:
        rate = int(self._processor.sampling_rate)
        samples = read_audio(item.inputs.get("audio"), rate, item.options.get("sampling_rate"))
        # Of a long sound the extractor draws a part by chance: always the same one, so that equal requests are
        # answered alike.
        np.random.seed(_SEED)
        return dict(self._processor([samples], sampling_rate=rate, return_tensors="pt"))


def _parts(prepared: Sequence[_Candidates]) -> Iterator[list[_Candidates]]:
    """Items in order, no more together than have a bounded number of sentences."""
    part: list[_Candidates] = []
    sentences: set[str] = set()
    for entry in prepared:
        if part and len(sentences.union(entry.rows)) > _MOST_TEXTS:
            yield part
            part, sentences = [], set()
        part.append(entry)
        sentences.update(entry.rows)
    yield part
