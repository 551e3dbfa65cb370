"""Tasks that take inputs of more than one kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trireme.backends.transformers.common_forms import (
    AUDIO,
    CANDIDATE_LABELS,
    FP32,
    GENERATION,
    GENERATION_DELAY_US,
    HYPOTHESIS_TEMPLATE,
    IMAGE,
    INT32,
    LABELS,
    SAMPLING_RATE,
    STRING,
    TEXT_INPUT,
    TEXT_OUTPUT,
    THRESHOLD,
    TOP_LABELS,
    TRUNCATION,
)
from trireme.backends.transformers.forms import FLAG, TEXT, TEXTS, WHOLE, Option, TaskForm, TensorForm

_WRITING_OPTIONS = (
    *GENERATION,
    Option("images", TEXTS, is_input=True),
    Option("return_full_text", FLAG),
    Option("stream", FLAG),
)
_IMAGE_TEXT = TaskForm(
    inputs=(replace(IMAGE, is_optional=True), replace(TEXT_INPUT, is_optional=True)),
    outputs=(TEXT_OUTPUT,),
    runner="multimodal.image_text:ImageTextToText",
    options=_WRITING_OPTIONS,
    batch_delay_us=GENERATION_DELAY_US,
)

MULTIMODAL_TASKS: Mapping[str, TaskForm] = {
    "zero-shot-image-classification": TaskForm(
        inputs=(IMAGE,),
        outputs=LABELS,
        runner="multimodal.zero_shot_classification:ZeroShotImageClassification",
        options=(CANDIDATE_LABELS, HYPOTHESIS_TEMPLATE, TRUNCATION),
    ),
    "zero-shot-object-detection": TaskForm(
        inputs=(IMAGE,),
        outputs=(*LABELS, TensorForm("box", INT32, (-1, 4))),
        runner="multimodal.zero_shot_detection:ZeroShotObjectDetection",
        options=(CANDIDATE_LABELS, THRESHOLD, TOP_LABELS, TRUNCATION),
    ),
    "document-question-answering": TaskForm(
        inputs=(
            TensorForm("question", STRING),
            replace(IMAGE, is_optional=True),
            TensorForm("boxes", INT32, (-1, 4), is_optional=True),
        ),
        outputs=(
            TensorForm("answer", STRING, (-1,)),
            TensorForm("score", FP32, (-1,)),
            TensorForm("start", INT32, (-1,)),
            TensorForm("end", INT32, (-1,)),
        ),
        runner="multimodal.document_questions:document_questions",
        options=(
            Option("words", TEXTS, is_input=True),
            Option("word_boxes", TEXT),
            Option("top_k", WHOLE),
            Option("max_answer_len", WHOLE),
            Option("doc_stride", WHOLE),
            Option("max_seq_len", WHOLE),
            Option("handle_impossible_answer", FLAG),
            Option("lang", TEXT),
            Option("tesseract_config", TEXT),
            Option("max_new_tokens", WHOLE, aliases=("max_output_length", "max_tokens")),
            Option("num_beams", WHOLE),
        ),
    ),
    "zero-shot-audio-classification": TaskForm(
        inputs=(AUDIO,),
        outputs=LABELS,
        runner="multimodal.zero_shot_classification:ZeroShotAudioClassification",
        options=(CANDIDATE_LABELS, HYPOTHESIS_TEMPLATE, SAMPLING_RATE, TRUNCATION),
    ),
    "any-to-any": replace(
        _IMAGE_TEXT,
        inputs=(*_IMAGE_TEXT.inputs, replace(AUDIO, is_optional=True)),
        outputs=(
            TEXT_OUTPUT,
            TensorForm("audio", STRING),
            TensorForm("waveform", FP32, (-1,)),
            TensorForm("sampling_rate", INT32),
        ),
        runner="multimodal.any_to_any:AnyToAny",
        options=(
            *_WRITING_OPTIONS,
            SAMPLING_RATE,
            Option("generation_mode", TEXT),
            Option("speaker", TEXT),
            Option("audio_encoding", TEXT),
        ),
    ),
    "image-text-to-text": _IMAGE_TEXT,
    "image-to-text": _IMAGE_TEXT,
    "visual-question-answering": _IMAGE_TEXT,
}
