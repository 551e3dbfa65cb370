"""Models that a `model.py` derives from or takes as they are: `from trireme.models import TextPromptModel`.

Each is imported when it is asked for, so that a file waits for nothing that it does not use.
"""

import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["CausalLanguageModel", "NeuronModel", "TextPromptModel"]

_PLACES = {
    "CausalLanguageModel": ("trireme.backends.gaudi.causal_lm", "CausalLanguageModel"),
    "NeuronModel": ("trireme.backends.neuron.model", "TritonPythonModel"),
    "TextPromptModel": ("trireme.backends.text_prompts", "TritonPythonModel"),
}

if TYPE_CHECKING:
    from trireme.backends.gaudi.causal_lm import CausalLanguageModel
    from trireme.backends.neuron.model import TritonPythonModel as NeuronModel
    from trireme.backends.text_prompts import TritonPythonModel as TextPromptModel
else:

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        module, own_name = _PLACES[name]
        return getattr(importlib.import_module(module), own_name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
