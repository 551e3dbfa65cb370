"""What a task loads, as the transformers backend does it: the model by these classes, and what prepares its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trireme.huggingface.saved_classes import telling_names
from trireme.tools.deploy.checks.library import Library
from trireme.tools.deploy.hub.model_files import ModelFiles

TOKENIZER = "AutoTokenizer"
BASE_MODEL = "AutoModel"
_SENTENCE_FILE = "modules.json"


@dataclass(frozen=True, slots=True)
class Needs:
    """Classes of transformers."""

    models: tuple[str, ...]
    """One of them has to know the architecture."""
    beside: tuple[str, ...] = (TOKENIZER,)
    """All of them have to find their files."""


_IMAGE = ("AutoImageProcessor",)
_TEXT_TO_TEXT = Needs(("AutoModelForSeq2SeqLM",))
NEEDS: Mapping[str, Needs] = {
    "text-generation": Needs(("AutoModelForCausalLM",)),
    "text2text-generation": _TEXT_TO_TEXT,
    "summarization": _TEXT_TO_TEXT,
    "translation": _TEXT_TO_TEXT,
    "text-classification": Needs(("AutoModelForSequenceClassification",)),
    "zero-shot-classification": Needs(("AutoModelForSequenceClassification",)),
    "token-classification": Needs(("AutoModelForTokenClassification",)),
    "question-answering": Needs(("AutoModelForQuestionAnswering",)),
    "fill-mask": Needs(("AutoModelForMaskedLM",)),
    "feature-extraction": Needs((BASE_MODEL,)),
    "sentence-embedding": Needs((BASE_MODEL,)),
    "table-question-answering": Needs(("AutoModelForTableQuestionAnswering", "AutoModelForSeq2SeqLM")),
    "image-classification": Needs(("AutoModelForImageClassification",), _IMAGE),
    "object-detection": Needs(("AutoModelForObjectDetection",), _IMAGE),
    "image-segmentation": Needs(
        (
            "AutoModelForImageSegmentation",
            "AutoModelForSemanticSegmentation",
            "AutoModelForUniversalSegmentation",
            "AutoModelForInstanceSegmentation",
        ),
        _IMAGE,
    ),
    "depth-estimation": Needs(("AutoModelForDepthEstimation",), _IMAGE),
    "mask-generation": Needs(("AutoModelForMaskGeneration",), _IMAGE),
    "keypoint-matching": Needs(("AutoModelForKeypointMatching",), _IMAGE),
    "image-feature-extraction": Needs((BASE_MODEL,), _IMAGE),
    "zero-shot-image-classification": Needs(("AutoModelForZeroShotImageClassification",), (*_IMAGE, TOKENIZER)),
    "zero-shot-object-detection": Needs(("AutoModelForZeroShotObjectDetection",), (*_IMAGE, TOKENIZER)),
    "automatic-speech-recognition": Needs(
        ("AutoModelForSpeechSeq2Seq", "AutoModelForCTC"), ("AutoFeatureExtractor", TOKENIZER)
    ),
    "audio-classification": Needs(("AutoModelForAudioClassification",), ("AutoFeatureExtractor",)),
}
"""By task, where it is checked before a model is loaded; the loading finds out about the others."""
OTHER_NAMES = {
    "sentiment-analysis": "text-classification",
    "ner": "token-classification",
    "sentence-similarity": "sentence-embedding",
    "embedding": "sentence-embedding",
    "embeddings": "sentence-embedding",
}


def needs_of(model: ModelFiles, task: str | None, library: Library) -> list[Needs]:
    """Those of the task that was named, or of all that the names in config.json may stand for; none where nobody
    can tell, as for a model without a head."""
    if task is not None:
        found = NEEDS.get("translation" if task.startswith("translation_") else OTHER_NAMES.get(task, task))
        return [] if found is None else [found]
    if any(file.name == _SENTENCE_FILE for file in model.files):
        return [NEEDS["sentence-embedding"]]
    names = telling_names(model.config)
    return [
        needs
        for needs in dict.fromkeys(NEEDS.values())
        if BASE_MODEL not in needs.models
        and any(auto in names or _class_of(model, auto, library) in names for auto in needs.models)
    ]


def is_headless(model: ModelFiles, library: Library) -> bool:
    """Whether it was saved without the head of any task."""
    return _class_of(model, BASE_MODEL, library) in telling_names(model.config)


def _class_of(model: ModelFiles, auto_class: str, library: Library) -> str | None:
    return library.class_for(auto_class, str(model.config.get("model_type")))


def tasks_for(model_type: str, library: Library) -> list[str]:
    """The tasks that the library has a class of this architecture for."""
    return [task for task, needs in NEEDS.items() if any(library.class_for(auto, model_type) for auto in needs.models)]
