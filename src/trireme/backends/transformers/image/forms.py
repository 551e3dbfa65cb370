"""Tasks that take images and videos."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trireme.backends.transformers.common_forms import (
    FP32,
    FUNCTION,
    IMAGE,
    INT32,
    LABELS,
    STRING,
    THRESHOLD,
    TOP_LABELS,
    UINT8,
)
from trireme.backends.transformers.forms import FLAG, NUMBER, TEXT, WHOLE, Option, TaskForm, TensorForm

_SCORES = TensorForm("score", FP32, (-1,))
_MASKS = TensorForm("mask", UINT8, (-1, -1, -1))
_BOXES = TensorForm("box", INT32, (-1, 4))
_VECTORS = TensorForm("features", FP32, (-1, -1))
_MAP_TYPES = {"bit", "convnext", "convnextv2", "cvt", "dinat", "efficientnet", "glpn", "maskformer", "mobilenet_v1"}
_MAP_TYPES |= {"mobilenet_v2", "mobilevit", "mobilevitv2", "poolformer", "pvt_v2", "regnet", "resnet", "segformer"}
_MAP_TYPES |= {"swiftformer", "textnet", "vitdet"}
"""Models, by their `model_type`, that keep the rows and columns of an image: their features have three dimensions."""
_MASK_THRESHOLD = Option("mask_threshold", NUMBER)

IMAGE_TASKS: Mapping[str, TaskForm] = {
    "image-classification": TaskForm(
        inputs=(IMAGE,),
        outputs=LABELS,
        runner="image.classification:ImageClassification",
        options=(TOP_LABELS, FUNCTION),
    ),
    "object-detection": TaskForm(
        inputs=(IMAGE,),
        outputs=(*LABELS, _BOXES),
        runner="image.detection:ObjectDetection",
        options=(THRESHOLD,),
    ),
    "image-segmentation": TaskForm(
        inputs=(IMAGE,),
        outputs=(*LABELS, _MASKS),
        runner="image.segmentation:ImageSegmentation",
        options=(Option("subtask", TEXT), THRESHOLD, _MASK_THRESHOLD, Option("overlap_mask_area_threshold", NUMBER)),
    ),
    "depth-estimation": TaskForm(
        inputs=(IMAGE,),
        outputs=(TensorForm("predicted_depth", FP32, (-1, -1)), TensorForm("depth", UINT8, (-1, -1))),
        runner="image.depth:DepthEstimation",
    ),
    "mask-generation": TaskForm(
        inputs=(IMAGE,),
        outputs=(_MASKS, _SCORES, _BOXES),
        runner="image.masks:MaskGeneration",
        options=(
            Option("points_per_batch", WHOLE),
            Option("points_per_crop", WHOLE),
            Option("crops_n_layers", WHOLE),
            Option("crop_overlap_ratio", NUMBER),
            Option("pred_iou_thresh", NUMBER),
            Option("stability_score_thresh", NUMBER),
            Option("stability_score_offset", NUMBER),
            _MASK_THRESHOLD,
            Option("crops_nms_thresh", NUMBER),
            Option("max_hole_area", WHOLE),
            Option("max_sprinkle_area", WHOLE),
        ),
    ),
    "image-feature-extraction": TaskForm(
        inputs=(IMAGE,),
        outputs=(_VECTORS,),
        runner="image.features:ImageFeatureExtraction",
        options=(Option("pool", FLAG),),
    ),
    "keypoint-matching": TaskForm(
        inputs=(IMAGE, TensorForm("image2", STRING, other_types=IMAGE.other_types, array_dims=IMAGE.array_dims)),
        outputs=(
            TensorForm("keypoint_image_0", INT32, (-1, 2)),
            TensorForm("keypoint_image_1", INT32, (-1, 2)),
            _SCORES,
        ),
        runner="image.keypoints:KeypointMatching",
        options=(THRESHOLD,),
    ),
    "video-classification": TaskForm(
        inputs=(TensorForm("video", STRING, (-1,), other_types=(UINT8,), array_dims=(-1, -1, -1, 3)),),
        outputs=LABELS,
        runner="image.video:VideoClassification",
        options=(TOP_LABELS, FUNCTION, Option("num_frames", WHOLE), Option("frame_sampling_rate", WHOLE)),
    ),
}


def feature_outputs(model_config: Mapping[str, Any]) -> tuple[TensorForm, ...]:
    """Of `image-feature-extraction`, by the model's config.json."""
    has_maps = model_config.get("model_type") in _MAP_TYPES
    return (replace(_VECTORS, dims=(-1, -1, -1)) if has_maps else _VECTORS,)
