"""Images to the places of objects that a request names."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trireme.backends.compiled.batching import RequestError
from trireme.backends.compiled.model_load import ModelLoadError, require
from trireme.backends.transformers.candidate_labels import candidate_labels
from trireme.backends.transformers.image.reading import processed_images, read_image
from trireme.backends.transformers.items import Item, Outputs, text_array
from trireme.backends.transformers.loading import Loaded
from trireme.backends.transformers.multimodal.features import joined, shapes
from trireme.backends.transformers.runner import check_clients
from trireme.backends.transformers.text.text_batch import TextBatches, TokenIds

_THRESHOLD = 0.1
_MOST_PAIRS = 16  # of an image and a label, where each pair is a forward of its own
_SEPARATE = ("owlvit", "owlv2")
"""Models that see the image without the labels, so that one forward serves all labels."""


@dataclass(frozen=True, slots=True)
class _Search:
    item: Item
    features: Mapping[str, Any]
    size: tuple[int, int]
    """Height and width of the image itself."""
    labels: Sequence[str]
    rows: Sequence[TokenIds]
    threshold: float
    top_count: int
    """0: all."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What the library's processors look for in a model's outputs: a row for each pair of an image and a label."""

    logits: Any
    pred_boxes: Any


class ZeroShotObjectDetection:
    """A model such as OWL-ViT, or such as Grounding DINO, which sees an image in the light of a label."""

    def __init__(self, loaded: Loaded) -> None:
        pillow = require("PIL.Image", "transformers")
        self._torch = loaded.torch
        self._model = loaded.model
        self._processor = loaded.processor
        self._texts = TextBatches(loaded)
        self._is_separate = loaded.model.config.model_type in _SEPARATE
        if not hasattr(loaded.processor, "post_process_object_detection"):
            raise ModelLoadError(
                f"model '{loaded.settings.name}' ('{loaded.source}', {type(loaded.model).__name__}) finds objects in a "
                "way that is not served; serve one such as OWL-ViT, OWLv2 or Grounding DINO"
            )
        try:  # with a first image, for which some processors import packages of their own
            loaded.processor(images=[pillow.new("RGB", (64, 64))], return_tensors="pt")
        except ImportError as error:
            reason = str(error).strip().splitlines()[0]
            raise ModelLoadError(
                f"model '{loaded.settings.name}' ('{loaded.source}') needs a package that is not installed: {reason}"
            ) from error

    def prepare(self, item: Item) -> _Search:
        """Takes `image` and `candidate_labels`."""
        options = item.options
        threshold, top_count = options.get("threshold", _THRESHOLD), options.get("top_k", 0)
        if not 0 <= threshold <= 1:
            raise RequestError(f"'threshold' must be from 0 to 1, found {threshold}")
        if top_count < 0:
            raise RequestError(f"'top_k' must be at least 1, or 0 for all objects; found {top_count}")
        labels = candidate_labels(options)
        rows = [self._texts.encode(label, truncation=options.get("truncation")) for label in labels]
        image = read_image(item.inputs.get("image"))
        features = processed_images(self._processor, [image])
        return _Search(item, features, (image.height, image.width), labels, rows, threshold, top_count)

    def key(self, prepared: _Search) -> Hashable:
        """Images of one shape; where one forward serves all labels, with equally many of them."""
        count = len(prepared.labels) if self._is_separate else 0
        return shapes(prepared.features), count, self._texts.key(prepared.rows)

    def run(self, prepared: Sequence[_Search]) -> list[Outputs]:
        """Label, score and corners (left, top, right, bottom) of the objects above the threshold, the surest first."""
        pairs = [(entry, row) for entry in prepared for row in entry.rows]
        found = self._all_at_once(prepared) if self._is_separate else self._pair_by_pair(pairs)
        sizes = self._torch.tensor([entry.size for entry, _ in pairs], device=self._model.device)
        least = min(entry.threshold for entry in prepared)
        objects = self._processor.post_process_object_detection(found, threshold=least, target_sizes=sizes)
        answers, first = [], 0
        for entry in prepared:
            answers.append(_best(entry, objects[first : first + len(entry.labels)]))
            first += len(entry.labels)
        return answers

    def _all_at_once(self, prepared: Sequence[_Search]) -> _Found:
        rows = [row for entry in prepared for row in entry.rows]
        texts = {name: tensor[: len(rows)] for name, tensor in self._texts.pad(rows).items()}
        outputs = self._model(**joined(self._torch, [entry.features for entry in prepared], self._model), **texts)
        boxes = outputs.pred_boxes.float().repeat_interleave(len(prepared[0].labels), dim=0)
        return _Found(outputs.logits.float().transpose(1, 2).flatten(0, 1)[..., None], boxes)

    def _pair_by_pair(self, pairs: Sequence[tuple[_Search, TokenIds]]) -> _Found:
        logits, boxes = [], []
        for start in range(0, len(pairs), _MOST_PAIRS):
            check_clients([entry.item for entry, _ in pairs])
            part = pairs[start : start + _MOST_PAIRS]
            texts = self._texts.pad([row for _, row in part])
            texts = {name: tensor[: len(part)] for name, tensor in texts.items()}
            outputs = self._model(**joined(self._torch, [entry.features for entry, _ in part], self._model), **texts)
            logits.append(outputs.logits.max(dim=-1, keepdim=True).values)  # the token that the box fits best
            boxes.append(outputs.pred_boxes)
        return _Found(self._torch.cat(logits).float(), self._torch.cat(boxes).float())


def _best(search: _Search, objects: Sequence[Mapping[str, Any]]) -> Outputs:
    """Of what was found for each label, the objects of all labels by their scores."""
    scores = np.concatenate([found["scores"].cpu().numpy() for found in objects])
    boxes = np.concatenate([found["boxes"].int().cpu().numpy().reshape(-1, 4) for found in objects])
    labels = [label for label, found in zip(search.labels, objects, strict=True) for _ in found["scores"]]
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > search.threshold]
    order = order[: search.top_count or len(order)]
    return {
        "label": text_array([labels[index] for index in order]),
        "score": scores[order].astype(np.float32),
        "box": boxes[order].astype(np.int32),
    }
