"""Masks of everything in an image, and points that two images share, are what the library's pipelines find."""

from __future__ import annotations

import functools
import importlib.util
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from payloads import file_of, picture, png
from tiny_image_models import image_model

from trireme.backends.transformers.image import masks
from trireme.backends.transformers.image.overlaps import without_overlaps
from trireme.core.errors import ErrorKind, ServingError
from trireme.testing import Request

pytestmark = pytest.mark.filterwarnings("ignore")

FILES = [png(1), png(2, 40, 48), png(3)]
LOOSE = {"pred_iou_thresh": 0.0, "stability_score_thresh": 0.0, "points_per_crop": 5, "crops_nms_thresh": 1.0}


@pytest.fixture(scope="module")
def library() -> Any:
    return pytest.importorskip("transformers")


def plain_suppression(boxes: Any, scores: Any, idxs: Any, iou_threshold: float) -> Any:
    """Non-maximum suppression box by box, as torchvision defines it."""
    import torch

    kept: list[int] = []
    for index in scores.sort(descending=True, stable=True).indices.tolist():
        if not any(_shared(boxes[index].tolist(), boxes[other].tolist()) > iou_threshold for other in kept):
            kept.append(index)
    assert (idxs == 0).all()
    return torch.tensor(kept, dtype=torch.long)


def _shared(box: list[float], other: list[float]) -> float:
    across = max(0.0, min(box[2], other[2]) - max(box[0], other[0]))
    down = max(0.0, min(box[3], other[3]) - max(box[1], other[1]))
    both = (box[2] - box[0]) * (box[3] - box[1]) + (other[2] - other[0]) * (other[3] - other[1]) - across * down
    return across * down / both if both else 0.0


@pytest.fixture
def masks_of_library(library: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The library's pipeline, which takes one function out of torchvision."""
    if importlib.util.find_spec("torchvision") is None:
        package, operations, boxes = (ModuleType(f"torchvision{part}") for part in ("", ".ops", ".ops.boxes"))
        package.ops, operations.boxes, boxes.batched_nms = operations, boxes, plain_suppression  # type: ignore[attr-defined]
        for module in (package, operations, boxes):
            monkeypatch.setitem(sys.modules, module.__name__, module)
    return _pipeline_of_masks(library)


@functools.cache
def _pipeline_of_masks(library: Any) -> Any:
    return library.pipeline("mask-generation", model=str(image_model("sam")))


def in_the_order_of(result: Any, scores: Any, masks: Any) -> list[int]:
    """The row of the result for each of these masks: of those whose scores are as good as equal, any may come first."""
    rows: list[int] = []
    for score, mask in zip(scores, masks, strict=True):
        equals = np.isclose(result["score"][0], score, rtol=1e-3, atol=1e-3)
        free = [row for row in np.flatnonzero(equals).tolist() if row not in rows]
        assert free, f"no mask is left that has the score {score}"
        rows.append(min(free, key=lambda row: np.count_nonzero((result["mask"][0][row] > 0) != mask)))
    return rows


@pytest.mark.parametrize(
    "options",
    [
        LOOSE,
        {**LOOSE, "points_per_batch": 5, "mask_threshold": 0.2},
        {**LOOSE, "crops_n_layers": 1, "crop_overlap_ratio": 0.2, "stability_score_offset": 0.5},
        {**LOOSE, "stability_score_thresh": 0.5, "stability_score_offset": 0.05},
        {**LOOSE, "crops_n_layers": 1, "crops_nms_thresh": 0.5},
    ],
)
def test_masks_equal_the_pipelines(served: Any, masks_of_library: Any, options: dict[str, Any]) -> None:
    model = served(image_model("sam"))  # which says nothing of its task
    results = model.infer_many([Request({"image": file_of(content)}, parameters=options) for content in FILES])
    count = 0
    for result, content in zip(results, FILES, strict=True):
        expected = masks_of_library(picture(content), output_bboxes_mask=True, **options)
        count += len(expected["masks"])
        scores = expected["scores"].numpy()
        np.testing.assert_allclose(result["score"][0], scores, rtol=1e-3, atol=1e-3)
        assert (np.diff(result["score"][0]) <= 0).all()
        masks = np.array(expected["masks"]).reshape(-1, *picture(content).size[::-1])
        assert result["mask"][0].shape == masks.shape
        assert set(np.unique(result["mask"])) <= {0, 255}
        rows = in_the_order_of(result, scores, masks)
        assert np.count_nonzero((result["mask"][0][rows] > 0) != masks) <= 0.01 * masks.size
        np.testing.assert_allclose(result["box"][0][rows], expected["bounding_boxes"].numpy(), atol=2)
    assert count > len(FILES)


def test_masks_of_a_large_image_are_looked_at_a_few_at_a_time(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    request = Request({"image": file_of(FILES[0])}, parameters=LOOSE)
    together = serve(image_model("sam")).infer(request)
    monkeypatch.setattr(masks, "_MOST_VALUES", 1)
    seen: list[int] = []
    kept = masks.MaskGeneration._kept
    monkeypatch.setattr(
        masks.MaskGeneration,
        "_kept",
        lambda self, entry, crop, answer: seen.append(answer["pred_masks"].shape[1]) or kept(self, entry, crop, answer),
    )
    alone = serve(image_model("sam")).infer(request)
    assert set(seen) == {1}
    assert len(seen) == 25
    np.testing.assert_array_equal(alone["mask"], together["mask"])
    np.testing.assert_allclose(alone["score"], together["score"], rtol=1e-4)


def test_where_nothing_is_found_masks_have_the_images_size(serve: Any) -> None:
    result = serve(image_model("sam"), pred_iou_thresh=1.0, points_per_crop=4).infer(image=file_of(FILES[1]))
    shapes = [result[name].shape for name in ("mask", "score", "box")]
    assert shapes == [(1, 0, 40, 48), (1, 0), (1, 0, 4)]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"points_per_batch": 0}, "'points_per_batch' must be from 1 to 65536, found 0"),
        ({"points_per_crop": 100_000}, "'points_per_crop' must be from 1 to 256"),
        ({"crops_n_layers": 9}, "'crops_n_layers' must be from 0 to 4"),
        ({"pred_iou_thresh": 2}, "'pred_iou_thresh' must be from 0 to 1"),
        ({"mask_threshold": "inf"}, "'mask_threshold' must be a finite number"),
        ({"max_hole_area": 3}, "'max_hole_area' is no option of SamImageProcessor"),
    ],
)
def test_a_wish_that_no_masks_can_be_made_with_is_its_requests_fault(
    served: Any, options: dict[str, Any], told: str
) -> None:
    requests = [Request({"image": file_of(FILES[0])}, parameters=entry) for entry in (LOOSE, {**LOOSE, **options})]
    good, bad = served(image_model("sam")).infer_many(requests)
    good.check()
    with pytest.raises(ServingError, match=told) as caught:
        bad.check()
    assert caught.value.kind is ErrorKind.INVALID_ARGUMENT


def test_of_boxes_that_overlap_the_best_stays() -> None:
    torch = pytest.importorskip("torch")
    generator = np.random.default_rng(1)
    corners = generator.integers(0, 12, (200, 2))
    boxes = np.concatenate([corners, corners + generator.integers(0, 9, (200, 2))], axis=1)
    scores = generator.integers(0, 20, 200).astype(np.float32)  # many are equal
    for most in (0.0, 0.3, 0.7, 1.0):
        expected = plain_suppression(torch.tensor(boxes), torch.tensor(scores), np.zeros(1), most).tolist()
        assert without_overlaps(boxes, scores, most).tolist() == expected
    assert without_overlaps(np.zeros((0, 4)), np.zeros(0, np.float32), 0.5).tolist() == []


def test_points_equal_the_pipelines_whoever_runs_beside_them(serve: Any, library: Any) -> None:
    pipeline = library.pipeline("keypoint-matching", model=str(image_model("superglue")))
    pairs = [(png(seed, 48, 48), png(seed + 10, 40, 40)) for seed in range(3)]
    results = serve(image_model("superglue")).infer_many(
        [{"image": file_of(first), "image2": file_of(second)} for first, second in pairs]
    )
    for result, (first, second) in zip(results, pairs, strict=True):
        expected = pipeline([picture(first), picture(second)])
        assert len(expected) > 1
        np.testing.assert_allclose(result["score"][0], [match["score"] for match in expected], rtol=1e-2)
        for name in ("keypoint_image_0", "keypoint_image_1"):
            np.testing.assert_array_equal(result[name][0], [[match[name]["x"], match[name]["y"]] for match in expected])


def test_points_lie_in_their_images_and_only_sure_ones_are_told(serve: Any) -> None:
    model = serve(image_model("superglue"))
    inputs = {"image": file_of(png(1, 30, 90)), "image2": file_of(png(5, 80, 40))}
    every = model.infer(Request(inputs))
    sure = float(every["score"][0][1])
    some = model.infer(Request(inputs, parameters={"threshold": sure}))
    assert len(some["score"][0]) == 1 < len(every["score"][0])
    for name, height, width in (("keypoint_image_0", 30, 90), ("keypoint_image_1", 80, 40)):
        farthest = every[name][0].max(axis=0)
        assert width * 0.6 < farthest[0] < width
        assert height * 0.6 < farthest[1] < height
    with pytest.raises(ServingError, match="'threshold' must be from 0 to 1, found -1"):
        model.infer(Request(inputs, parameters={"threshold": -1}))


def test_a_second_image_that_is_none_is_named(serve: Any) -> None:
    with pytest.raises(ServingError, match=r"input 'image2' \(2 bytes"):
        serve(image_model("superglue")).infer(image=file_of(png(1)), image2=file_of(b"no"))
