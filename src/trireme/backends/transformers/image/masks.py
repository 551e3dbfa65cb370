"""Images to the masks of everything in them, asked for with a grid of points."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.backends.compiled.batching import RequestError
from trireme.backends.transformers.image.image_model import ImageModel, PreparedImage
from trireme.backends.transformers.image.overlaps import without_overlaps
from trireme.backends.transformers.image.ranges import fraction, number, whole
from trireme.backends.transformers.image.reading import read_image
from trireme.backends.transformers.items import Item, Outputs

_POINTS_PER_BATCH = 64
_POINTS_PER_SIDE = 32
_MOST_POINTS_PER_SIDE = 256
_MASKS_PER_POINT = 3
_MOST_CROP_LAYERS = 4  # the crops of a layer are four times as many as those of the one before
_CROP_OVERLAP = 512 / 1500
_FILTERS = {"pred_iou_thresh": 0.88, "stability_score_thresh": 0.95}
_CUTS = {"mask_threshold": 0.0, "stability_score_offset": 1.0}
_BOX_OVERLAP = 0.7
_AREAS = ("max_hole_area", "max_sprinkle_area")
_MOST_AREA = 1 << 30
_INSIDE = 255
_MOST_VALUES = 1 << 29
"""Of masks in the image's own size that are looked at together: 2 GiB of them."""


@dataclass(frozen=True, slots=True)
class _Crops(PreparedImage):
    """An image as the crops that are looked at: all of it first, then its parts. `inputs` has a row for each."""

    boxes: Any
    points: Any
    labels: Any


@dataclass(frozen=True, slots=True)
class _Found:
    """Masks as lengths of runs, down the columns, with their scores and boxes."""

    runs: list[dict[str, Any]]
    scores: Any
    boxes: Any


class MaskGeneration(ImageModel):
    """A model that is given points of an image and answers with what they belong to."""

    def prepare(self, item: Item) -> _Crops:
        """Checks the options, cuts the image into crops and lays a grid over each."""
        self._check(item.options)
        options = item.options
        layers = whole(options, "crops_n_layers", 0, 0, _MOST_CROP_LAYERS)
        overlap = fraction(options, "crop_overlap_ratio", _CROP_OVERLAP)
        side = whole(options, "points_per_crop", _POINTS_PER_SIDE, 1, _MOST_POINTS_PER_SIDE)
        image = read_image(item.inputs.get("image"))
        size = self._processor.size
        longest = size.get("longest_edge") or size.get("height")
        boxes, points, crops, labels = self._processor.generate_crop_boxes(image, longest, layers, overlap, side)
        return _Crops(item, self._processed(crops), (image.height, image.width), boxes, points, labels)

    def key(self, prepared: PreparedImage) -> Hashable:
        """Images with as many crops of one shape; that they differ in options does not matter."""
        return tuple(prepared.inputs["pixel_values"].shape)

    def run(self, prepared: Sequence[_Crops]) -> list[Outputs]:
        """Mask, score and box of everything that was found; the best first."""
        found: list[list[_Found]] = [[] for _ in prepared]
        for crop in range(len(prepared[0].boxes)):
            pixels = [{"pixel_values": entry.inputs["pixel_values"][crop : crop + 1]} for entry in prepared]
            seen = self._model.get_image_embeddings(self._batch(pixels)["pixel_values"])
            for index, entry in enumerate(prepared):
                found[index] += self._asked(entry, crop, _row(seen, index))
        return [self._outputs(entry, parts) for entry, parts in zip(prepared, found, strict=True)]

    def _check(self, options: Mapping[str, Any]) -> None:
        whole(options, "points_per_batch", _POINTS_PER_BATCH, 1, _MOST_POINTS_PER_SIDE**2)
        for name, default in {**_FILTERS, "crops_nms_thresh": _BOX_OVERLAP}.items():
            fraction(options, name, default)
        for name, default in _CUTS.items():
            number(options, name, default)
        known = inspect.signature(self._processor.post_process_masks).parameters
        for name in _AREAS:
            if name in options and name not in known:
                raise RequestError(f"'{name}' is no option of {type(self._processor).__name__}, which this model has")
            whole(options, name, 0, 0, _MOST_AREA)

    def _asked(self, entry: _Crops, crop: int, seen: Any) -> list[_Found]:
        """What the model answers to the points of one crop, some at a time."""
        count = entry.item.options.get("points_per_batch", _POINTS_PER_BATCH)
        count = min(count, max(1, _MOST_VALUES // (_MASKS_PER_POINT * entry.size[0] * entry.size[1])))
        found = []
        for start in range(0, entry.points.shape[1], count):
            span = slice(start, start + count)
            points = entry.points[:, span, crop : crop + 1].to(self._device, self._torch.float32)
            labels = entry.labels[:, span, crop : crop + 1].to(self._device)
            answer = self._model(input_points=points, input_labels=labels, **seen)
            found.append(self._kept(entry, crop, answer))
        return found

    def _kept(self, entry: _Crops, crop: int, answer: Any) -> _Found:
        """The masks that are sure and stable enough."""
        options = entry.item.options
        size = [entry.inputs["original_sizes"][crop].tolist()]
        shapes: dict[str, Any] = {"reshaped_input_sizes": None}
        if "reshaped_input_sizes" in entry.inputs:
            shapes["reshaped_input_sizes"] = [entry.inputs["reshaped_input_sizes"][crop].tolist()]
        cut = options.get("mask_threshold", _CUTS["mask_threshold"])
        masks = answer["pred_masks"].float()
        areas = {name: options[name] for name in _AREAS if options.get(name)}
        for extra in (areas, {}) if areas else ({},):
            masks = self._processor.post_process_masks(
                masks, size, mask_threshold=cut, binarize=False, **shapes, **extra
            )
        runs, scores, boxes = self._processor.filter_masks(
            masks[0],
            answer["iou_scores"][0].float(),
            list(entry.size),
            entry.boxes[crop],
            *(options.get(name, default) for name, default in _FILTERS.items()),
            cut,
            options.get("stability_score_offset", _CUTS["stability_score_offset"]),
        )
        return _Found(runs, scores, boxes)

    def _outputs(self, entry: _Crops, parts: Sequence[_Found]) -> Outputs:
        runs = [run for part in parts for run in part.runs]
        scores = self._torch.cat([part.scores for part in parts]).cpu().numpy().astype(np.float32)
        boxes = self._torch.cat([part.boxes for part in parts]).cpu().numpy().reshape(-1, 4)
        kept = without_overlaps(boxes, scores, entry.item.options.get("crops_nms_thresh", _BOX_OVERLAP))
        masks = np.zeros((len(kept), *entry.size), dtype=np.uint8)
        for mask, index in zip(masks, kept, strict=True):
            mask[...] = _drawn(runs[index])
        return {"mask": masks, "score": scores[kept], "box": boxes[kept].astype(np.int32)}


def _row(seen: Any, index: int) -> dict[str, Any]:
    """What the model saw in one image of a batch, as it takes it back."""

    def of_image(part: Any) -> Any:
        return [of_image(entry) for entry in part] if isinstance(part, (list, tuple)) else part[index : index + 1]

    if isinstance(seen, tuple):
        return {"image_embeddings": of_image(seen[0]), "intermediate_embeddings": of_image(seen[1])}
    return {"image_embeddings": of_image(seen)}


def _drawn(run: Mapping[str, Any]) -> NDArray[np.uint8]:
    """A mask out of the lengths of its runs, which begin outside of it and go down the columns."""
    height, width = run["size"]
    values = np.zeros(len(run["counts"]), dtype=np.uint8)
    values[1::2] = _INSIDE
    return np.repeat(values, run["counts"]).reshape(width, height).T
