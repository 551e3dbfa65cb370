"""Plain folders of language models that our engine serves where transformers cannot be asked."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from trireme.llm.models.catalog import read_spec
from trireme.llm.models.checkpoint import CheckpointError
from trireme.llm.models.fields import UnsupportedModelError

_NEEDED = ("torch", "transformers")


def is_for_engine(folder: Path) -> bool:
    """Whether the folder is a language model that the engine computes with numpy, and nothing else here could."""
    if all(find_spec(name) is not None for name in _NEEDED) or not any(folder.glob("*.safetensors")):
        return False
    try:
        read_spec(folder)
    except (CheckpointError, UnsupportedModelError):
        return False
    return True


def write_engine_model(folder: Path, model_folder: Path) -> None:
    """A model of a repository that serves the folder as it is."""
    model_folder.mkdir()
    (model_folder / "config.pbtxt").write_text('backend: "llm"\n')
    (model_folder / "1").symlink_to(folder, target_is_directory=True)
