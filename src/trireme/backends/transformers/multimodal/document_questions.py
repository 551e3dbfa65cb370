"""Questions about the image of a document: a runner for each of the two sorts of models that answer them."""

from __future__ import annotations

from trireme.backends.compiled.model_load import ModelLoadError, require
from trireme.backends.transformers.loading import Loaded
from trireme.backends.transformers.multimodal.extracted_answers import ExtractedAnswers
from trireme.backends.transformers.multimodal.written_answers import WrittenAnswers
from trireme.backends.transformers.runner import Runner


def document_questions(loaded: Loaded) -> Runner:
    """For a model that marks the answer among the document's words, or one that looks at the image and writes it."""
    require("PIL", "transformers")
    config = loaded.model.config
    if config.model_type != "vision-encoder-decoder":
        return ExtractedAnswers(loaded)
    if config.encoder.model_type != "donut-swin":
        raise ModelLoadError(
            f"model '{loaded.settings.name}' ('{loaded.source}') has an encoder of the kind "
            f"{config.encoder.model_type}; of the models that write answers about documents only those of Donut's "
            "kind (donut-swin) are served"
        )
    return WrittenAnswers(loaded)
