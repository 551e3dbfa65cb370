"""Segments, depths and features of images are what the library's pipelines give for each image alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from payloads import file_of, picture, png, texts
from tiny_image_models import image_model

from trireme.backends.transformers.image import segmentation
from trireme.core.errors import ErrorKind, ServingError
from trireme.testing import Request

pytestmark = pytest.mark.filterwarnings("ignore")

FILES = [png(1), png(2), png(3, 35, 70)]
LOOSE = {"threshold": 0.0, "mask_threshold": 0.1, "overlap_mask_area_threshold": 0.0}
"""Random weights are sure of nothing."""


@pytest.fixture(scope="module")
def library() -> Any:
    return pytest.importorskip("transformers")


def requests(options: dict[str, Any]) -> list[Request]:
    return [Request({"image": file_of(content)}, parameters=options) for content in FILES]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("segformer", {}),
        ("segformer", {"subtask": "semantic"}),
        ("detr", LOOSE),
        ("detr", {**LOOSE, "subtask": "instance", "mask_threshold": 0.2}),
        ("detr", {"subtask": "semantic"}),
    ],
)
def test_segments_equal_the_pipelines(serve: Any, library: Any, kind: str, options: dict[str, Any]) -> None:
    pipeline = library.pipeline("image-segmentation", model=str(image_model(kind)))
    results = serve(image_model(kind)).infer_many(requests(options))
    count = 0
    for result, content in zip(results, FILES, strict=True):
        expected = pipeline(picture(content), **options)
        count += len(expected)
        assert texts(result["label"]) == [segment["label"] for segment in expected]
        assert result["mask"].dtype == np.uint8
        for mask, segment in zip(result["mask"][0], expected, strict=True):
            assert mask.shape == segment["mask"].size[::-1]
            assert (mask != np.asarray(segment["mask"])).mean() < 0.01  # pixels where two classes are alike
        if expected and expected[0]["score"] is None:
            assert "score" not in result
        else:
            np.testing.assert_allclose(result["score"][0], [segment["score"] for segment in expected], rtol=1e-3)
    assert count > 0


def test_an_image_without_segments_has_masks_of_its_size(serve: Any) -> None:
    result = serve(image_model("detr")).infer(Request({"image": file_of(FILES[0])}, parameters={"threshold": 1.0}))
    shapes = [result[name].shape for name in ("label", "score", "mask")]
    assert shapes == [(1, 0), (1, 0), (1, 0, 48, 40)]


def test_rows_of_different_sizes_are_padded_with_zeros(serve: Any) -> None:
    model = serve(image_model("segformer"))
    both = model.infer(image=np.concatenate([file_of(FILES[0]), file_of(FILES[2])]))
    alone = [model.infer(image=file_of(content))["mask"][0] for content in (FILES[0], FILES[2])]
    assert both["mask"].shape[2:] == (48, 70)
    for row, masks in zip(both["mask"], alone, strict=True):
        count, height, width = masks.shape
        np.testing.assert_array_equal(row[:count, :height, :width], masks)
        assert row[:count].sum() == masks.sum(dtype=np.int64)


@pytest.mark.parametrize(("kind", "layers"), [("segformer", 3), ("detr", 8)])
def test_an_image_that_would_take_the_memory_of_all_is_refused_alone(
    serve: Any, monkeypatch: pytest.MonkeyPatch, kind: str, layers: int
) -> None:
    monkeypatch.setattr(segmentation, "_MOST_VALUES", 48 * 40 * layers)
    good, bad = serve(image_model(kind)).infer_many([requests({})[0], requests({})[2]])
    good.check()
    told = "the image has 70 x 35 pixels, and this model divides images of at most 1920 in all; scale it down"
    with pytest.raises(ServingError, match=told) as caught:
        bad.check()
    assert caught.value.kind is ErrorKind.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        ("segformer", {"subtask": "panoptic"}, "'subtask' must be one of semantic for this model, found 'panoptic'"),
        ("detr", {"subtask": "all"}, "'subtask' must be one of panoptic, instance, semantic for this model"),
        ("detr", {"mask_threshold": 1.5}, "'mask_threshold' must be from 0 to 1, found 1.5"),
        ("detr", {"threshold": "much"}, "'threshold' must be a number, found 'much'"),
        ("detr", {"overlap_mask_area_threshold": "nan"}, "'overlap_mask_area_threshold' must be from 0 to 1"),
    ],
)
def test_a_wish_that_no_segments_can_be_made_with_is_its_requests_fault(
    serve: Any, kind: str, options: dict[str, Any], told: str
) -> None:
    good, bad = serve(image_model(kind)).infer_many([requests({})[0], requests(options)[0]])
    good.check()
    with pytest.raises(ServingError, match=told) as caught:
        bad.check()
    assert caught.value.kind is ErrorKind.INVALID_ARGUMENT


@pytest.mark.parametrize("kind", ["dpt", "glpn"])
def test_depths_equal_the_pipelines(serve: Any, library: Any, kind: str) -> None:
    pipeline = library.pipeline("depth-estimation", model=str(image_model(kind)))
    results = serve(image_model(kind)).infer_many(requests({}))
    for result, content in zip(results, FILES, strict=True):
        expected = pipeline(picture(content))
        depth = expected["predicted_depth"].numpy()
        assert result["predicted_depth"][0].shape == picture(content).size[::-1]
        np.testing.assert_allclose(result["predicted_depth"][0], depth, rtol=1e-3, atol=1e-4 * np.ptp(depth))
        drawn = np.asarray(expected["depth"]).astype(int)
        assert abs(result["depth"][0].astype(int) - drawn).max() <= 1
        assert (result["depth"].min(), result["depth"].max()) == (0, 255)


def test_an_image_that_is_too_small_is_its_requests_fault(serve: Any) -> None:
    good, bad = serve(image_model("glpn")).infer_many([{"image": file_of(part)} for part in (FILES[0], png(1, 20, 20))])
    good.check()
    with pytest.raises(ServingError, match="the image cannot be prepared for the model") as caught:
        bad.check()
    assert caught.value.kind is ErrorKind.INVALID_ARGUMENT


def test_what_is_no_image_has_no_depth_and_leaves_the_others_theirs(serve: Any) -> None:
    good, bad = serve(image_model("dpt")).infer_many([{"image": file_of(part)} for part in (FILES[0], b"none")])
    good.check()
    with pytest.raises(ServingError, match="could not be read as an image"):
        bad.check()


@pytest.mark.parametrize(("kind", "shape"), [("vit-features", (17, 32)), ("resnet-features", (16, 4, 4))])
def test_features_of_images_equal_the_pipelines(serve: Any, library: Any, kind: str, shape: tuple[int, ...]) -> None:
    pipeline = library.pipeline("image-feature-extraction", model=str(image_model(kind)))
    model = serve(image_model(kind))  # which says nothing of its task
    assert [entry["dims"] for entry in model.config["output"]] == [[-1] * len(shape)]
    results = model.infer_many([*requests({}), *requests({"pool": True})])
    for index, result in enumerate(results):
        is_pooled = index >= len(FILES)
        expected = np.array(pipeline(picture(FILES[index % len(FILES)]), pool=is_pooled), dtype=np.float32)
        found = result["features"]
        pooled = (1, shape[1]) if len(shape) == 2 else (shape[0], 1, 1)
        assert found.shape == (1, *(pooled if is_pooled else shape))
        np.testing.assert_allclose(found, expected.reshape(found.shape), rtol=1e-3, atol=1e-5 * abs(expected).max())
