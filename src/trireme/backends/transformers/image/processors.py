"""What some models need beside themselves and others of the same task do not have."""

from __future__ import annotations

from typing import Any

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.transformers.loading import Loaded


def load_beside(loaded: Loaded, *names: str) -> Any:
    """The first of these classes of transformers that can be loaded from the model's files; raises ModelLoadError."""
    reasons = []
    for name in names:
        try:
            return loaded.beside(name)
        except (AttributeError, ImportError, OSError, TypeError, ValueError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            reasons.append(f"{name}: {reason}")
    raise ModelLoadError(
        f"model '{loaded.settings.name}' ('{loaded.source}') needs more than weights for {loaded.task}, and that could "
        f"not be loaded: {'; '.join(reasons)}"
    )
