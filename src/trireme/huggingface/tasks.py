"""The tasks that are served, and the classes of transformers that each is loaded with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TOKENIZER = "AutoTokenizer"
BASE_MODEL = "AutoModel"


@dataclass(frozen=True, slots=True)
class TaskClasses:
    """Names of classes."""

    models: tuple[str, ...]
    """The first of them that knows the architecture loads the model."""
    beside: tuple[str, ...] = (TOKENIZER,)
    """What is loaded beside the model: the tokenizer, and what prepares other inputs."""


_IMAGE = ("AutoImageProcessor",)
_SOUND = ("AutoFeatureExtractor",)
_SEVERAL = ("AutoProcessor",)
_TEXT_TO_TEXT = TaskClasses(("AutoModelForSeq2SeqLM",))
_IMAGE_TEXT = TaskClasses(("AutoModelForImageTextToText",), _SEVERAL)
_SPEAKING = TaskClasses(("AutoModelForTextToWaveform", "AutoModelForTextToSpectrogram"))

TASK_CLASSES: Mapping[str, TaskClasses] = {
    "text-generation": TaskClasses(("AutoModelForCausalLM",)),
    "text2text-generation": _TEXT_TO_TEXT,
    "summarization": _TEXT_TO_TEXT,
    "translation": _TEXT_TO_TEXT,
    "text-classification": TaskClasses(("AutoModelForSequenceClassification",)),
    "zero-shot-classification": TaskClasses(("AutoModelForSequenceClassification",)),
    "token-classification": TaskClasses(("AutoModelForTokenClassification",)),
    "question-answering": TaskClasses(("AutoModelForQuestionAnswering",)),
    "table-question-answering": TaskClasses(("AutoModelForTableQuestionAnswering", "AutoModelForSeq2SeqLM")),
    "fill-mask": TaskClasses(("AutoModelForMaskedLM",)),
    "feature-extraction": TaskClasses((BASE_MODEL,)),
    "sentence-embedding": TaskClasses((BASE_MODEL,)),
    "image-classification": TaskClasses(("AutoModelForImageClassification",), _IMAGE),
    "object-detection": TaskClasses(("AutoModelForObjectDetection",), _IMAGE),
    "image-segmentation": TaskClasses(
        (
            "AutoModelForImageSegmentation",
            "AutoModelForSemanticSegmentation",
            "AutoModelForUniversalSegmentation",
            "AutoModelForInstanceSegmentation",
        ),
        _IMAGE,
    ),
    "depth-estimation": TaskClasses(("AutoModelForDepthEstimation",), _IMAGE),
    "mask-generation": TaskClasses(("AutoModelForMaskGeneration",), _IMAGE),
    "image-feature-extraction": TaskClasses((BASE_MODEL,), _IMAGE),
    "keypoint-matching": TaskClasses(("AutoModelForKeypointMatching",), _IMAGE),
    "video-classification": TaskClasses(("AutoModelForVideoClassification",), ()),
    "automatic-speech-recognition": TaskClasses(("AutoModelForSpeechSeq2Seq", "AutoModelForCTC"), (*_SOUND, TOKENIZER)),
    "audio-classification": TaskClasses(("AutoModelForAudioClassification",), _SOUND),
    "zero-shot-image-classification": TaskClasses(("AutoModelForZeroShotImageClassification",), (*_IMAGE, TOKENIZER)),
    "zero-shot-object-detection": TaskClasses(("AutoModelForZeroShotObjectDetection",), (*_IMAGE, TOKENIZER)),
    "zero-shot-audio-classification": TaskClasses((BASE_MODEL,), (*_SOUND, TOKENIZER)),
    "document-question-answering": TaskClasses(
        ("AutoModelForDocumentQuestionAnswering", "AutoModelForImageTextToText")
    ),
    "image-text-to-text": _IMAGE_TEXT,
    "image-to-text": _IMAGE_TEXT,
    "visual-question-answering": TaskClasses(
        ("AutoModelForVisualQuestionAnswering", "AutoModelForImageTextToText"), _SEVERAL
    ),
    "any-to-any": TaskClasses(("AutoModelForMultimodalLM",), _SEVERAL),
    "text-to-audio": _SPEAKING,
    "text-to-speech": _SPEAKING,
}
"""By the names that the hub has for the tasks."""

OTHER_TASK_NAMES: Mapping[str, str] = {
    "sentiment-analysis": "text-classification",
    "ner": "token-classification",
    "sentence-similarity": "sentence-embedding",
    "embedding": "sentence-embedding",
    "embeddings": "sentence-embedding",
}
