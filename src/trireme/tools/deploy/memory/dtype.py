"""The datatype that a deployed model computes in, as whoever serves it chooses."""

from __future__ import annotations

from trireme.tools.deploy.hub.model_files import ModelFiles
from trireme.tools.deploy.hub.weights import Weights
from trireme.tools.deploy.memory.estimate import saved_dtype
from trireme.tools.deploy.options import DeployOptions


def chosen_dtype(
    model: ModelFiles, weights: Weights, options: DeployOptions, device: str, *, is_engine_served: bool
) -> str | None:
    """That of the engine, or of the code that is ejected; None: the transformers backend chooses."""
    if options.dtype != "auto":
        return options.dtype
    saved = saved_dtype(model.config, weights)
    if not is_engine_served:
        return saved if options.is_ejected else None  # it has PyTorch load the model as it was saved
    # Imported late: it takes a while, and models of the transformers backend do not need it.
    from trireme.llm.executor_choice import planned_dtype
    from trireme.llm.models.checkpoint import CheckpointError
    from trireme.llm.models.fields import UnsupportedModelError

    try:
        return planned_dtype(model.folder, device, options.dtype, saved)
    except (CheckpointError, UnsupportedModelError):  # which the engine tells of
        return planned_dtype(None, device, options.dtype, saved)
