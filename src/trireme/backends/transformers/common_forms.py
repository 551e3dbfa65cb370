"""Tensors and options that the forms of several tasks share."""

from __future__ import annotations

from trireme.backends.transformers.forms import FLAG, NUMBER, TEXT, TEXTS, WHOLE, Option, TensorForm

STRING, FP32, INT32, UINT8 = "TYPE_STRING", "TYPE_FP32", "TYPE_INT32", "TYPE_UINT8"

TEXT_INPUT = TensorForm("text_input", STRING)
TEXT_OUTPUT = TensorForm("text_output", STRING)
MESSAGES = TensorForm("messages", STRING, is_optional=True)
IMAGE = TensorForm("image", STRING, other_types=(UINT8,), array_dims=(-1, -1, 3))
AUDIO = TensorForm("audio", STRING, other_types=(FP32,), array_dims=(-1,))
LABELS = (TensorForm("label", STRING, (-1,)), TensorForm("score", FP32, (-1,)))

TRUNCATION = Option("truncation", FLAG)
TOP_LABELS = Option("top_k", WHOLE)
FUNCTION = Option("function_to_apply", TEXT)
CANDIDATE_LABELS = Option("candidate_labels", TEXTS, is_input=True)
HYPOTHESIS_TEMPLATE = Option("hypothesis_template", TEXT)
THRESHOLD = Option("threshold", NUMBER)
SAMPLING_RATE = Option("sampling_rate", WHOLE)
GENERATION = (
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
    TRUNCATION,
)
GENERATION_DELAY_US = 2000
