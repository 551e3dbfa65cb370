"""Images to the segments they are made of: things, stuff, or the class of every pixel."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.backends.compiled.batching import RequestError
from trireme.backends.transformers.image.image_model import ImageModel, PreparedImage
from trireme.backends.transformers.image.processors import load_beside
from trireme.backends.transformers.image.ranges import fraction
from trireme.backends.transformers.image.reading import read_image
from trireme.backends.transformers.items import Item, Outputs, text_array
from trireme.backends.transformers.loading import Loaded

_SUBTASKS = ("panoptic", "instance", "semantic")
_SEMANTIC = "semantic"
_FRACTIONS = {"threshold": 0.9, "mask_threshold": 0.5, "overlap_mask_area_threshold": 0.5}
_INSIDE = 255
_MOST_VALUES = 1 << 31
"""Of an image in its own size, 8 GiB: the library scales every class, or every segment it considers, up to it."""


class ImageSegmentation(ImageModel):
    """A model that divides images."""

    def __init__(self, loaded: Loaded) -> None:
        super().__init__(loaded)
        self._subtasks = [name for name in _SUBTASKS if hasattr(self._processor, f"post_process_{name}_segmentation")]
        is_told_in_words = loaded.model.config.model_type == "oneformer"
        self._tokenizer = load_beside(loaded, "AutoTokenizer") if is_told_in_words else None

    def prepare(self, item: Item) -> PreparedImage:
        """Checks the options first."""
        subtask = self._subtask(item)
        for name, default in _FRACTIONS.items():
            fraction(item.options, name, default)
        image = read_image(item.inputs.get("image"))
        self._check_size(image.width, image.height, subtask)
        told = {} if self._tokenizer is None else {"task_inputs": [subtask]}
        inputs = self._processed([image], **told)
        if self._tokenizer is not None:
            length = self._model.config.task_seq_len
            words = self._tokenizer(inputs["task_inputs"], padding="max_length", max_length=length, return_tensors="pt")
            inputs["task_inputs"] = words["input_ids"]
        return PreparedImage(item, inputs, (image.height, image.width))

    def key(self, prepared: PreparedImage) -> Hashable:
        """Images of one shape, to be divided alike; one that comes in pieces runs alone."""
        if not all(self._torch.is_tensor(value) for value in prepared.inputs.values()):
            return id(prepared)
        return super().key(prepared), self._subtask(prepared.item), *self._fractions(prepared.item).values()

    def run(self, prepared: Sequence[PreparedImage]) -> list[Outputs]:
        """Label, score (but for semantic segmentation, which has none) and mask of every segment."""
        outputs = self._forward(prepared)
        item, sizes = prepared[0].item, [entry.size for entry in prepared]
        subtask = self._subtask(item)
        process = getattr(self._processor, f"post_process_{subtask}_segmentation")
        if subtask == _SEMANTIC:
            return [self._classes(found.cpu().numpy()) for found in process(outputs, target_sizes=sizes)]
        found = process(outputs, target_sizes=sizes, **self._fractions(item))
        return [self._segments(entry["segmentation"].cpu().numpy(), entry["segments_info"]) for entry in found]

    def _check_size(self, width: int, height: int, subtask: str) -> None:
        """Raises RequestError for an image that would take the memory of all: a small file can hold one."""
        config = self._model.config
        queries = getattr(config, "num_queries", None)
        layers = len(config.id2label) if subtask == _SEMANTIC or queries is None else queries
        if width * height * layers > _MOST_VALUES:
            most = _MOST_VALUES // layers
            raise RequestError(
                f"the image has {width} x {height} pixels, and this model divides images of at most {most} in all; "
                "scale it down"
            )

    def _forward(self, prepared: Sequence[PreparedImage]) -> Any:
        inputs = prepared[0].inputs
        pieces = {name: value for name, value in inputs.items() if not self._torch.is_tensor(value)}
        if not pieces:
            return super()._forward(prepared)
        tensors = {name: value for name, value in inputs.items() if name not in pieces}
        return self._model(**self._batch([tensors]), **pieces)

    def _subtask(self, item: Item) -> str:
        wanted: str = item.options.get("subtask", self._subtasks[0])
        if wanted not in self._subtasks:
            raise RequestError(f"'subtask' must be one of {', '.join(self._subtasks)} for this model, found '{wanted}'")
        return wanted

    def _fractions(self, item: Item) -> dict[str, float]:
        return {name: item.options.get(name, default) for name, default in _FRACTIONS.items()}

    def _segments(self, drawn: NDArray[Any], segments: Sequence[dict[str, Any]]) -> Outputs:
        scores = np.array([segment["score"] for segment in segments], dtype=np.float32)
        places, labels = [segment["id"] for segment in segments], [segment["label_id"] for segment in segments]
        return {**self._masks(drawn, places, labels), "score": scores}

    def _classes(self, drawn: NDArray[Any]) -> Outputs:
        found = np.unique(drawn).tolist()
        return self._masks(drawn, found, found)

    def _masks(self, drawn: NDArray[Any], places: Sequence[int], labels: Sequence[int]) -> dict[str, NDArray[Any]]:
        masks = np.zeros((len(places), *drawn.shape), dtype=np.uint8)
        for mask, place in zip(masks, places, strict=True):
            mask[drawn == place] = _INSIDE
        return {"label": text_array([str(self._model.config.id2label[label]) for label in labels]), "mask": masks}
