"""The tasks that are served, by the names that the hub has for them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.transformers.forms import FLAG, NUMBER, TEXT, TEXTS, WHOLE, Option, TaskForm, TensorForm

_STRING, _FP32, _INT32, _UINT8 = "TYPE_STRING", "TYPE_FP32", "TYPE_INT32", "TYPE_UINT8"

_TEXT = TensorForm("text", _STRING)
_TEXT_INPUT = TensorForm("text_input", _STRING)
_TEXT_OUTPUT = TensorForm("text_output", _STRING)
_IMAGE = TensorForm("image", _STRING, other_types=(_UINT8,))
_AUDIO = TensorForm("audio", _STRING, other_types=(_FP32,))
_LABELS = (TensorForm("label", _STRING, (-1,)), TensorForm("score", _FP32, (-1,)))
_SPAN = (TensorForm("start", _INT32, (-1,)), TensorForm("end", _INT32, (-1,)))

_TRUNCATION = Option("truncation", FLAG)
_TOP_LABELS = Option("top_k", WHOLE)
_FUNCTION = Option("function_to_apply", TEXT)
_GENERATION = (
    Option("max_new_tokens", WHOLE, aliases=("max_output_length", "max_tokens")),
    Option("min_new_tokens", WHOLE),
    Option("do_sample", FLAG),
    Option("temperature", NUMBER),
    Option("top_k", WHOLE),
    Option("top_p", NUMBER),
    Option("repetition_penalty", NUMBER),
    Option("num_beams", WHOLE),
    Option("num_return_sequences", WHOLE),
    Option("seed", WHOLE, aliases=("random_seed",)),
    Option("stop", TEXTS, is_input=True, aliases=("stop_words",)),
    _TRUNCATION,
)
_LANGUAGES = (Option("src_lang", TEXT), Option("tgt_lang", TEXT))
_GENERATION_DELAY_US = 2000
_TEXT_TO_TEXT = TaskForm(
    inputs=(_TEXT_INPUT,),
    outputs=(_TEXT_OUTPUT,),
    runner="text_to_text:TextToText",
    auto_classes=("AutoModelForSeq2SeqLM",),
    options=(*_GENERATION, *_LANGUAGES),
    batch_delay_us=_GENERATION_DELAY_US,
)
_MESSAGES = TensorForm("messages", _STRING, is_optional=True)

TASKS: Mapping[str, TaskForm] = {
    "text-generation": TaskForm(
        inputs=(_TEXT_INPUT,),
        outputs=(_TEXT_OUTPUT,),
        runner="text_generation:TextGeneration",
        auto_classes=("AutoModelForCausalLM",),
        options=(*_GENERATION, Option("return_full_text", FLAG), Option("stream", FLAG)),
        batch_delay_us=_GENERATION_DELAY_US,
    ),
    "summarization": _TEXT_TO_TEXT,
    "translation": _TEXT_TO_TEXT,
    "text2text-generation": _TEXT_TO_TEXT,
    "text-classification": TaskForm(
        inputs=(_TEXT, TensorForm("text_pair", _STRING, is_optional=True)),
        outputs=_LABELS,
        runner="text_classification:TextClassification",
        auto_classes=("AutoModelForSequenceClassification",),
        options=(_TOP_LABELS, _FUNCTION, _TRUNCATION),
    ),
    "zero-shot-classification": TaskForm(
        inputs=(_TEXT,),
        outputs=_LABELS,
        runner="text_classification:ZeroShotClassification",
        auto_classes=("AutoModelForSequenceClassification",),
        options=(
            Option("candidate_labels", TEXTS, is_input=True),
            Option("hypothesis_template", TEXT),
            Option("multi_label", FLAG),
            _TRUNCATION,
        ),
    ),
    "token-classification": TaskForm(
        inputs=(_TEXT,),
        outputs=(
            TensorForm("entity", _STRING, (-1,)),
            TensorForm("score", _FP32, (-1,)),
            TensorForm("word", _STRING, (-1,)),
            *_SPAN,
        ),
        runner="token_classification:TokenClassification",
        auto_classes=("AutoModelForTokenClassification",),
        options=(Option("aggregation_strategy", TEXT), _TRUNCATION),
    ),
    "question-answering": TaskForm(
        inputs=(TensorForm("question", _STRING), TensorForm("context", _STRING)),
        outputs=(TensorForm("answer", _STRING, (-1,)), TensorForm("score", _FP32, (-1,)), *_SPAN),
        runner="question_answering:QuestionAnswering",
        auto_classes=("AutoModelForQuestionAnswering",),
        options=(
            Option("top_k", WHOLE),
            Option("max_answer_len", WHOLE),
            Option("doc_stride", WHOLE),
            Option("max_seq_len", WHOLE),
            Option("handle_impossible_answer", FLAG),
        ),
    ),
    "fill-mask": TaskForm(
        inputs=(_TEXT,),
        outputs=(
            TensorForm("token_str", _STRING, (-1, -1)),
            TensorForm("score", _FP32, (-1, -1)),
            TensorForm("token", _INT32, (-1, -1)),
            TensorForm("sequence", _STRING, (-1, -1)),
        ),
        runner="fill_mask:FillMask",
        auto_classes=("AutoModelForMaskedLM",),
        options=(_TOP_LABELS, _TRUNCATION),
    ),
    "feature-extraction": TaskForm(
        inputs=(_TEXT,),
        outputs=(TensorForm("features", _FP32, (-1, -1)),),
        runner="embeddings:FeatureExtraction",
        auto_classes=("AutoModel",),
        options=(_TRUNCATION,),
    ),
    "sentence-embedding": TaskForm(
        inputs=(_TEXT,),
        outputs=(TensorForm("embedding", _FP32, (-1,)),),
        runner="embeddings:SentenceEmbedding",
        auto_classes=("AutoModel",),
        options=(Option("pooling", TEXT), Option("normalize", FLAG), _TRUNCATION),
    ),
    "image-classification": TaskForm(
        inputs=(_IMAGE,),
        outputs=_LABELS,
        runner="images:ImageClassification",
        auto_classes=("AutoModelForImageClassification",),
        options=(_TOP_LABELS, _FUNCTION),
    ),
    "object-detection": TaskForm(
        inputs=(_IMAGE,),
        outputs=(*_LABELS, TensorForm("box", _INT32, (-1, 4))),
        runner="images:ObjectDetection",
        auto_classes=("AutoModelForObjectDetection",),
        options=(Option("threshold", NUMBER),),
    ),
    "automatic-speech-recognition": TaskForm(
        inputs=(_AUDIO,),
        outputs=(TensorForm("text", _STRING),),
        runner="speech:SpeechRecognition",
        auto_classes=("AutoModelForSpeechSeq2Seq", "AutoModelForCTC"),
        options=(
            Option("sampling_rate", WHOLE),
            Option("language", TEXT),
            Option("speech_task", TEXT),
            Option("max_new_tokens", WHOLE),
        ),
        batch_delay_us=_GENERATION_DELAY_US,
    ),
    "audio-classification": TaskForm(
        inputs=(_AUDIO,),
        outputs=_LABELS,
        runner="speech:AudioClassification",
        auto_classes=("AutoModelForAudioClassification",),
        options=(Option("sampling_rate", WHOLE), _TOP_LABELS, _FUNCTION),
    ),
}
_OTHER_NAMES = {
    "sentiment-analysis": "text-classification",
    "ner": "token-classification",
    "sentence-similarity": "sentence-embedding",
    "embedding": "sentence-embedding",
    "embeddings": "sentence-embedding",
}
_LANGUAGE_PAIR = re.compile(r"translation_\w+_to_\w+")


def canonical_task(name: str, model: str) -> str:
    """The name in `TASKS`; raises ModelLoadError for a task that is not served, with the nearest that is."""
    name = _OTHER_NAMES.get(name, name)
    if _LANGUAGE_PAIR.fullmatch(name):
        return "translation"
    if name in TASKS:
        return name
    nearest = difflib.get_close_matches(name.lower().replace("_", "-"), [*TASKS, *_OTHER_NAMES], n=1)
    hint = f"; did you mean '{nearest[0]}'?" if nearest else ""
    raise ModelLoadError(
        f"parameter 'task' of model '{model}' names '{name}', which is not served{hint} The tasks are: "
        f"{', '.join(sorted(TASKS))}"
    )


def inputs_of(form: TaskForm, is_chat: bool) -> tuple[TensorForm, ...]:
    """The task's inputs; a chat takes `messages`, or a `text_input` that stands for a single message of the user."""
    if not is_chat:
        return form.all_inputs()
    optional = TensorForm(_TEXT_INPUT.name, _STRING, is_optional=True)
    return (_MESSAGES, *(optional if entry is _TEXT_INPUT else entry for entry in form.all_inputs()))
