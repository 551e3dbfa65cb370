"""Whether the weights that a task adds to an architecture, its head, are among a model's files."""

from __future__ import annotations

from collections.abc import Sequence

from trireme.huggingface.saved_classes import telling_names
from trireme.huggingface.tasks import BASE_MODEL
from trireme.tools.deploy.hub.model_files import ModelFiles
from trireme.tools.deploy.hub.weights import tensor_names

_WRITING = ("lm_head", "cls.", "embed_out", "lm_predictions", "vocab_projector", "mlm_head", "output_projection")
_SORTING = ("classifier", "score", "classification_head", "logits_proj", "head.", "cls_classifier", "predictions.")
_USUAL = {
    "AutoModelForQuestionAnswering": ("qa_outputs", "qa_classifier", "start_logits", "end_logits"),
    "AutoModelForSequenceClassification": _SORTING,
    "AutoModelForTokenClassification": _SORTING,
    "AutoModelForImageClassification": _SORTING,
    "AutoModelForAudioClassification": _SORTING,
    "AutoModelForObjectDetection": ("class_labels_classifier", "class_embed", "bbox", "box_head"),
    "AutoModelForCTC": ("lm_head", "ctc_head"),
    "AutoModelForCausalLM": _WRITING,
    "AutoModelForMaskedLM": _WRITING,
    "AutoModelForSeq2SeqLM": _WRITING,
}
"""What the tensors of a head are called, or begin with, by the class that loads it."""
_WRITERS = ("CausalLM", "LMHeadModel", "MaskedLM", "ConditionalGeneration", "Seq2SeqLM", "PreTraining", "MTModel")
"""Ends of classes that share the head that writes words, often with the embeddings, so that no file has it."""


def missing_head(model: ModelFiles, task: str, autos: Sequence[str], classes: Sequence[str]) -> str | None:
    """The warning, where the model was saved without what the task adds; `classes` are those that will be made."""
    saved = telling_names(model.config)
    usual = [name for auto in autos for name in _USUAL.get(auto, ())]
    if not saved or not usual or BASE_MODEL in autos or set(saved) & set(classes):
        return None
    if _WRITING[0] in usual and any(name.endswith(_WRITERS) for name in saved):
        return None
    names = tensor_names(model)
    if names is not None and any(part.startswith(tuple(usual)) for name in names for part in _tails(name)):
        return None
    files = "its files have no weights" if names is not None else "its files may have no weights"
    return (
        f"it was saved as {saved[0]}, and {files} for the last layer that {task} needs ({classes[0]}): transformers "
        f"fills it with random numbers, and so are the answers. Take a model that was trained for {task}, or leave "
        "--task out"
    )


def _tails(name: str) -> list[str]:
    """`bert.cls.predictions`, `cls.predictions`, `predictions`: heads may lie one or two levels deep."""
    parts = name.split(".")
    return [".".join(parts[start:]) for start in range(min(2, len(parts)))]
