"""Which task a model of images or videos is for, and that all of them are served in half the precision."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from payloads import file_of, png
from tiny_image_models import BUILDERS, image_model

from trireme.backends.transformers.settings import read_settings
from trireme.backends.transformers.source import task_of
from trireme.backends.transformers.tasks import TASKS
from trireme.testing import Request
from trireme.tools.deploy.checks import task as deployed

pytestmark = pytest.mark.filterwarnings("ignore")

SETTINGS, _ = read_settings({"name": "m"})
KINDS = {
    "segformer": "image-segmentation",
    "detr": "image-segmentation",
    "glpn": "depth-estimation",
    "dpt": "depth-estimation",
    "sam": "mask-generation",
    "vit-features": "image-feature-extraction",
    "resnet-features": "image-feature-extraction",
    "superglue": "keypoint-matching",
    "videomae": "video-classification",
}


def test_the_task_follows_from_the_files() -> None:
    assert KINDS.keys() == BUILDERS.keys()
    for kind, task in KINDS.items():
        config = json.loads((image_model(kind) / "config.json").read_text())
        assert task_of(SETTINGS, str(image_model(kind)), lambda found=config: found) == task
    assert set(KINDS.values()) <= TASKS.keys() & set(deployed.TASKS)


@pytest.mark.parametrize(
    ("config", "task"),
    [
        ({"architectures": ["Mask2FormerForUniversalSegmentation"]}, "image-segmentation"),
        ({"architectures": ["MaskFormerForInstanceSegmentation"]}, "image-segmentation"),
        ({"architectures": ["Sam2Model"], "model_type": "sam2"}, "mask-generation"),
        ({"architectures": ["BeitModel"], "vocab_size": 8192, "image_size": 224}, "image-feature-extraction"),
        ({"architectures": ["TimmWrapperModel"], "model_type": "timm_wrapper"}, "image-feature-extraction"),
        (
            {"architectures": ["ViltModel"], "vocab_size": 9, "max_position_embeddings": 9, "image_size": 224},
            "feature-extraction",
        ),
        (
            {
                "architectures": ["Own"],
                "auto_map": {"AutoModel": "own.Base", "AutoModelForImageClassification": "own.Head"},
                "num_channels": 3,
            },
            "image-classification",
        ),
    ],
)
def test_the_task_follows_from_what_the_configuration_says(config: dict[str, Any], task: str, tmp_path: Path) -> None:
    assert task_of(SETTINGS, str(tmp_path), lambda: config) == task


@pytest.mark.parametrize("kind", list(KINDS))
def test_half_the_precision_is_served_too(serve: Any, kind: str) -> None:
    files = np.array([[png(seed) for seed in range(4)]], dtype=np.object_)
    inputs = {"video": files} if kind == "videomae" else {"image": file_of(png(1))}
    if kind == "superglue":
        inputs["image2"] = file_of(png(2))
    parameters: dict[str, Any] = {}
    if kind == "sam":
        parameters = {"pred_iou_thresh": 0.0, "stability_score_thresh": 0.0, "points_per_crop": 2}
    maps = 'output { name: "features" data_type: TYPE_FP32 dims: [ -1, -1, -1 ] }' if kind == "resnet-features" else ""
    result = serve(image_model(kind), maps, dtype="bfloat16").infer(Request(inputs, parameters=parameters))
    for form in TASKS[KINDS[kind]].outputs:
        if form.name in result and form.data_type == "TYPE_FP32":
            assert result[form.name].dtype == np.float32
            assert np.isfinite(result[form.name]).all()
