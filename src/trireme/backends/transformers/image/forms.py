"""Tasks that take images."""

from __future__ import annotations

from collections.abc import Mapping

from trireme.backends.transformers.common_forms import FUNCTION, IMAGE, INT32, LABELS, THRESHOLD, TOP_LABELS
from trireme.backends.transformers.forms import TaskForm, TensorForm

_PROCESSOR = ("AutoImageProcessor",)

IMAGE_TASKS: Mapping[str, TaskForm] = {
    "image-classification": TaskForm(
        inputs=(IMAGE,),
        outputs=LABELS,
        runner="image.images:ImageClassification",
        auto_classes=("AutoModelForImageClassification",),
        options=(TOP_LABELS, FUNCTION),
        loads=_PROCESSOR,
    ),
    "object-detection": TaskForm(
        inputs=(IMAGE,),
        outputs=(*LABELS, TensorForm("box", INT32, (-1, 4))),
        runner="image.images:ObjectDetection",
        auto_classes=("AutoModelForObjectDetection",),
        options=(THRESHOLD,),
        loads=_PROCESSOR,
    ),
}
