"""What pip calls the package that a module is imported from, where the two names differ."""

from __future__ import annotations

from typing import Final

_NAMES: Final = {
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "huggingface_hub": "huggingface-hub",
    "sentence_transformers": "sentence-transformers",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}


def distribution_of(module: str) -> str:
    """By the name of a module or of one in its package: `sklearn.svm` comes with scikit-learn."""
    package = module.partition(".")[0]
    return _NAMES.get(package, package)
