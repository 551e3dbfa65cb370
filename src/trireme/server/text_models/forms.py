"""How a model that writes texts, or makes vectors of them, wants to be asked: read off its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from trireme.config.model_config import ModelConfig, TensorConfig
from trireme.core.datatype import BYTES

OPTION_INPUTS: Final = {
    "max_tokens": ("max_tokens", "max_new_tokens", "max_output_tokens", "request_output_len"),
    "min_tokens": ("min_tokens", "min_new_tokens", "min_length"),
    "seed": ("seed", "random_seed"),
    "stop": ("stop", "stop_words"),
    "temperature": ("temperature",),
    "top_k": ("top_k", "runtime_top_k"),
    "top_p": ("top_p", "runtime_top_p"),
    "min_p": ("min_p",),
    "repetition_penalty": ("repetition_penalty",),
    "presence_penalty": ("presence_penalty",),
    "frequency_penalty": ("frequency_penalty",),
    "bad_words": ("bad_words",),
    "ignore_eos": ("ignore_eos",),
}
"""By option: the inputs under which models take it as a tensor."""
IMAGES_INPUT: Final = "images"
"""Under which a model takes images beside its prompt, each as a text."""
FLAGS: Final = {
    "return_finish_reason": "finish_reason",
    "return_num_input_tokens": "num_input_tokens",
    "return_num_output_tokens": "num_output_tokens",
}
"""By input of Triton's vLLM backend, and in part of TensorRT-LLM's: the output that it asks for."""
_EMBEDDING_OUTPUTS: Final = ("embedding", "embeddings", "sentence_embedding", "features")
_WORDS_OF_TENSORRT_LLM: Final = ("stop_words", "random_seed", "runtime_top_p", "request_output_len")
_FILLED: Final = frozenset(OPTION_INPUTS["max_tokens"])
"""Inputs that get a value even where the client gives none."""


@dataclass(frozen=True, slots=True)
class GenerationForm:
    """How a model that writes texts takes its prompts and gives its texts."""

    backend: str
    is_decoupled: bool
    has_batch: bool
    prompt_input: str
    text_output: str
    inputs: Mapping[str, TensorConfig]
    outputs: Mapping[str, TensorConfig]
    is_ensemble: bool = False

    @property
    def takes_messages(self) -> bool:
        """Whether a chat is sent as such, and not written out as one text."""
        return "messages" in self.inputs

    @property
    def takes_options(self) -> bool:
        """Whether all options of a generation go in together, as one JSON text."""
        return "sampling_parameters" in self.inputs

    @property
    def takes_images(self) -> bool:
        """Whether images can be sent beside the prompt."""
        entry = self.inputs.get(IMAGES_INPUT)
        return entry is not None and entry.datatype == BYTES

    @property
    def makes_choices(self) -> bool:
        """Whether one request can be answered with several choices."""
        return self.takes_options and "index" in self.outputs

    @property
    def may_begin_with_prompt(self) -> bool:
        """Whether a text is preceded by its prompt unless the request says that it is not to be."""
        entry = self.inputs.get("exclude_input_in_output")
        return entry is not None and entry.datatype == "BOOL" and not self.makes_choices

    @property
    def may_repeat_prompt(self) -> bool:
        """Whether a text may be preceded by its prompt, and the request cannot say that it is not to be: so do the
        ensembles of TensorRT-LLM. A model that is not told how much to write goes on with nothing."""
        has_limit = any(name in self.inputs for name in OPTION_INPUTS["max_tokens"])
        is_asked_otherwise = self.takes_options or self.may_begin_with_prompt or self.backend == "transformers"
        return has_limit and not is_asked_otherwise

    @property
    def takes_tensors_alone(self) -> bool:
        """Whether it is asked with TensorRT-LLM's inputs, and looks at no parameters of a request."""
        has_its_words = any(name in self.inputs for name in _WORDS_OF_TENSORRT_LLM)
        return has_its_words and not self.takes_options and self.backend != "transformers"

    @property
    def draws_by_top_p(self) -> bool:
        """Whether a temperature alone changes nothing, and the seed is always the same where none is given: so it is
        with TensorRT-LLM, whose inputs these are."""
        return self.takes_tensors_alone and any(name in self.inputs for name in OPTION_INPUTS["top_p"])

    @property
    def tells_by_flags(self) -> bool:
        """Whether the end of a text and its tokens are told to those who ask with inputs, as Triton's vLLM backend
        has it."""
        return self.takes_options and "usage" not in self.outputs and FLAGS.keys() <= self.inputs.keys()

    @property
    def flags(self) -> tuple[str, ...]:
        """The inputs of FLAGS that are to be set, so that the end of a text and its tokens are told."""
        if self.takes_options:
            return tuple(FLAGS) if self.tells_by_flags else ()
        return tuple(flag for flag, output in FLAGS.items() if flag in self.inputs and output in self.outputs)

    @property
    def has_tokenizer(self) -> bool:
        """Whether the model can be asked for the tokens of a text alone."""
        return self.takes_options and "token_ids" in self.outputs and "input_ids" in self.inputs


@dataclass(frozen=True, slots=True)
class EmbeddingForm:
    """How a model that makes vectors of texts takes and gives them."""

    has_batch: bool
    text_input: TensorConfig
    vector_output: str
    has_usage: bool


def generation_form(config: ModelConfig) -> GenerationForm | None:
    """None for a model that does not write texts, or needs more than a text."""
    if config.sequence_batching is not None:
        return None
    prompt, text = _prompt_input(config), _text_output(config)
    if prompt is None or text is None:
        return None
    if _needed(config, prompt):
        return None
    return GenerationForm(
        config.backend,
        config.is_decoupled,
        config.max_batch_size > 0,
        prompt,
        text,
        config.inputs,
        config.outputs,
        config.is_ensemble,
    )


def inputs_in_the_way(config: ModelConfig) -> list[str]:
    """What a model that takes and gives texts needs beside its prompt, and no request for a text brings."""
    prompt = _prompt_input(config) or next(
        (name for name, entry in config.inputs.items() if entry.datatype == BYTES and not entry.is_optional), None
    )
    if prompt is None or all(entry.datatype != BYTES for entry in config.outputs.values()):
        return []
    return _needed(config, prompt)


def _needed(config: ModelConfig, prompt: str) -> list[str]:
    brought = {prompt, *_FILLED, "sampling_parameters", "stream", "messages"}
    return [name for name, entry in config.inputs.items() if not entry.is_optional and name not in brought]


def embedding_form(config: ModelConfig) -> EmbeddingForm | None:
    """None for a model that makes no vectors of texts."""
    vectors = [
        name for name in _EMBEDDING_OUTPUTS if name in config.outputs and config.outputs[name].datatype == "FP32"
    ]
    texts = [entry for entry in config.inputs.values() if entry.datatype == BYTES and not entry.is_optional]
    others = [entry for entry in config.inputs.values() if entry.datatype != BYTES and not entry.is_optional]
    if not vectors or len(texts) != 1 or others or config.sequence_batching is not None:
        return None
    return EmbeddingForm(config.max_batch_size > 0, texts[0], vectors[0], "usage" in config.outputs)


def _prompt_input(config: ModelConfig) -> str | None:
    texts = [name for name, entry in config.inputs.items() if entry.datatype == BYTES]
    if "text_input" in texts:
        return "text_input"
    return texts[0] if len(texts) == 1 and config.backend != "transformers" else None


def _text_output(config: ModelConfig) -> str | None:
    texts = [name for name, entry in config.outputs.items() if entry.datatype == BYTES]
    if "text_output" in texts:
        return "text_output"
    return texts[0] if len(texts) == len(config.outputs) == 1 and config.backend != "transformers" else None
