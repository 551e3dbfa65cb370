"""Lets the tests of this folder import what they share, on a machine where nothing is set for Hugging Face."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

UNSET = ("PRIVATE_REPO_TOKEN", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HOME", "HF_HUB_CACHE", "TRANSFORMERS_CACHE")


@pytest.fixture(autouse=True, scope="module")
def _bare_environment() -> Iterator[None]:
    """No tokens, no caches, no network, and one thread per worker."""
    with pytest.MonkeyPatch.context() as patch:
        for name in UNSET:
            patch.delenv(name, raising=False)
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("OMP_NUM_THREADS", "1")  # several models on few cores, and tiny matrices
        yield
