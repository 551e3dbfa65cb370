"""What both sorts of document models need: the question, and what makes an image into features."""

from __future__ import annotations

from typing import Any

from trireme.backends.compiled.batching import RequestError
from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.transformers.items import Item
from trireme.backends.transformers.loading import Loaded


def read_question(item: Item) -> str:
    """The input `question`; raises RequestError where it is empty."""
    question = item.text("question")
    if not question.strip():
        raise RequestError("input 'question' is empty")
    return question


def image_processor(loaded: Loaded) -> Any:
    """That of the model's files; it is not among what the task loads, since models of texts and boxes have none."""
    try:
        return loaded.beside("AutoImageProcessor")
    except (OSError, ValueError) as error:
        raise ModelLoadError(
            f"model '{loaded.settings.name}' ('{loaded.source}') looks at images, and has no image processor "
            f"({str(error).splitlines()[0]}); put its preprocessor_config.json beside the config.json"
        ) from error
