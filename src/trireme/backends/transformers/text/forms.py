"""Tasks that take texts."""

from __future__ import annotations

from collections.abc import Mapping

from trireme.backends.transformers.common_forms import (
    CANDIDATE_LABELS,
    FP32,
    FUNCTION,
    GENERATION,
    GENERATION_DELAY_US,
    HYPOTHESIS_TEMPLATE,
    INT32,
    LABELS,
    STRING,
    TEXT_INPUT,
    TEXT_OUTPUT,
    TOP_LABELS,
    TRUNCATION,
)
from trireme.backends.transformers.forms import FLAG, TEXT, TEXTS, WHOLE, Option, TaskForm, TensorForm

_TEXT = TensorForm("text", STRING)
_SPAN = (TensorForm("start", INT32, (-1,)), TensorForm("end", INT32, (-1,)))
_LANGUAGES = (Option("src_lang", TEXT), Option("tgt_lang", TEXT))
_TEXT_TO_TEXT = TaskForm(
    inputs=(TEXT_INPUT,),
    outputs=(TEXT_OUTPUT,),
    runner="text.text_to_text:TextToText",
    options=(*GENERATION, *_LANGUAGES),
    batch_delay_us=GENERATION_DELAY_US,
)
TEXT_TASKS: Mapping[str, TaskForm] = {
    "text-generation": TaskForm(
        inputs=(TEXT_INPUT,),
        outputs=(TEXT_OUTPUT,),
        runner="text.text_generation:TextGeneration",
        options=(*GENERATION, Option("return_full_text", FLAG), Option("stream", FLAG)),
        batch_delay_us=GENERATION_DELAY_US,
    ),
    "summarization": _TEXT_TO_TEXT,
    "translation": _TEXT_TO_TEXT,
    "text2text-generation": _TEXT_TO_TEXT,
    "text-classification": TaskForm(
        inputs=(_TEXT, TensorForm("text_pair", STRING, is_optional=True)),
        outputs=LABELS,
        runner="text.text_classification:TextClassification",
        options=(TOP_LABELS, FUNCTION, TRUNCATION),
    ),
    "zero-shot-classification": TaskForm(
        inputs=(_TEXT,),
        outputs=LABELS,
        runner="text.text_classification:ZeroShotClassification",
        options=(
            CANDIDATE_LABELS,
            HYPOTHESIS_TEMPLATE,
            Option("multi_label", FLAG),
            TRUNCATION,
        ),
    ),
    "token-classification": TaskForm(
        inputs=(_TEXT,),
        outputs=(
            TensorForm("entity", STRING, (-1,)),
            TensorForm("score", FP32, (-1,)),
            TensorForm("word", STRING, (-1,)),
            *_SPAN,
        ),
        runner="text.token_classification:TokenClassification",
        options=(Option("aggregation_strategy", TEXT), TRUNCATION),
    ),
    "question-answering": TaskForm(
        inputs=(TensorForm("question", STRING), TensorForm("context", STRING)),
        outputs=(TensorForm("answer", STRING, (-1,)), TensorForm("score", FP32, (-1,)), *_SPAN),
        runner="text.question_answering:QuestionAnswering",
        options=(
            Option("top_k", WHOLE),
            Option("max_answer_len", WHOLE),
            Option("doc_stride", WHOLE),
            Option("max_seq_len", WHOLE),
            Option("handle_impossible_answer", FLAG),
        ),
    ),
    "table-question-answering": TaskForm(
        inputs=(TensorForm("table", STRING), TensorForm("query", STRING)),
        outputs=(
            TensorForm("answer", STRING),
            TensorForm("coordinates", INT32, (-1, 2)),
            TensorForm("cells", STRING, (-1,)),
            TensorForm("aggregator", STRING),
        ),
        runner="text.table_question_answering:table_questions",
        options=(Option("previous_queries", TEXTS, is_input=True), *GENERATION),
        batch_delay_us=GENERATION_DELAY_US,
    ),
    "fill-mask": TaskForm(
        inputs=(_TEXT,),
        outputs=(
            TensorForm("token_str", STRING, (-1, -1)),
            TensorForm("score", FP32, (-1, -1)),
            TensorForm("token", INT32, (-1, -1)),
            TensorForm("sequence", STRING, (-1, -1)),
        ),
        runner="text.fill_mask:FillMask",
        options=(TOP_LABELS, TRUNCATION),
    ),
    "feature-extraction": TaskForm(
        inputs=(_TEXT,),
        outputs=(TensorForm("features", FP32, (-1, -1)),),
        runner="text.embeddings:FeatureExtraction",
        options=(TRUNCATION,),
    ),
    "sentence-embedding": TaskForm(
        inputs=(_TEXT,),
        outputs=(TensorForm("embedding", FP32, (-1,)),),
        runner="text.embeddings:SentenceEmbedding",
        options=(Option("pooling", TEXT), Option("normalize", FLAG), TRUNCATION),
    ),
}
