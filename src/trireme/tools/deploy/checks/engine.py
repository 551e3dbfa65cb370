"""What the engine for language models needs beside itself: on a CPU it computes with numpy where nothing else is."""

from __future__ import annotations

from trireme.tools.deploy.checks.task import is_engine_served
from trireme.tools.deploy.hub.model_files import ModelFiles, weight_files
from trireme.tools.deploy.options import DeployOptions

_BOTH = ("torch", "transformers")
_OWN_FORMS = (".safetensors",)
"""Of weights: what is read without PyTorch."""
_TOKENIZER = "tokenizer.json"
"""Others are read by transformers."""


def packages_for(model: ModelFiles, options: DeployOptions, device: str) -> tuple[str, ...]:
    """The packages without which the model cannot be loaded on this device."""
    if not is_engine_served(model, options, device) or not _is_known(model):
        return _BOTH
    needed = []
    if device != "cpu" or options.dtype not in ("auto", "float32") or not _is_read_without_torch(model):
        needed.append("torch")
    if all(file.name != _TOKENIZER for file in model.files):
        needed.append("transformers")
    return tuple(needed)


def _is_read_without_torch(model: ModelFiles) -> bool:
    return all(file.name.endswith(_OWN_FORMS) for file in weight_files(model.files, model.indexed))


def _is_known(model: ModelFiles) -> bool:
    """Whether the engine has code of its own for the architecture; others run through transformers' code."""
    if model.folder is None:
        return False
    # Imported late: it takes a while, and few models need it.
    from trireme.llm.models.catalog import read_spec
    from trireme.llm.models.checkpoint import CheckpointError
    from trireme.llm.models.fields import UnsupportedModelError

    try:
        read_spec(model.folder)
    except UnsupportedModelError:
        return False
    except CheckpointError:  # which the engine tells of
        return True
    return True
