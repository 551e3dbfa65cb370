"""Which configurations are models of texts, and how those are asked."""

from __future__ import annotations

import pytest
from google.protobuf import text_format

from trireme.config.model_config import ModelConfig
from trireme.proto import model_config_pb2
from trireme.server.text_models.forms import GenerationForm, embedding_form, generation_form, inputs_in_the_way

TEXT_IN = 'input { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] }'
TEXT_OUT = 'output { name: "text_output" data_type: TYPE_STRING dims: [ -1 ] }'
OPTIONS = 'input { name: "sampling_parameters" data_type: TYPE_STRING dims: [ 1 ] optional: true }'
MESSAGES = 'input { name: "messages" data_type: TYPE_STRING dims: [ -1 ] optional: true }'
IDS = 'input { name: "input_ids" data_type: TYPE_INT64 dims: [ -1 ] optional: true }'
INDEX = 'output { name: "index" data_type: TYPE_INT32 dims: [ 1 ] }'
TOKENS = 'output { name: "token_ids" data_type: TYPE_INT32 dims: [ -1 ] }'


def config(*parts: str) -> ModelConfig:
    message = text_format.Parse("\n".join(['name: "m"', *parts]), model_config_pb2.ModelConfig())
    return ModelConfig.from_message(message)


def form(*parts: str) -> GenerationForm:
    found = generation_form(config(*parts))
    assert found is not None
    return found


def test_language_model_takes_everything() -> None:
    found = form('backend: "llm"', TEXT_IN, OPTIONS, MESSAGES, IDS, TEXT_OUT, INDEX, TOKENS)
    assert (found.prompt_input, found.text_output, found.backend) == ("text_input", "text_output", "llm")
    assert found.takes_messages
    assert found.takes_options
    assert found.makes_choices
    assert found.has_tokenizer


def test_plain_model_takes_texts_alone() -> None:
    text_in = 'input { name: "a" data_type: TYPE_STRING dims: [ 1 ] }'
    text_out = 'output { name: "b" data_type: TYPE_STRING dims: [ 1 ] }'
    found = form('backend: "python"', "max_batch_size: 4", text_in, text_out)
    assert (found.prompt_input, found.text_output, found.has_batch) == ("a", "b", True)
    abilities = (found.takes_messages, found.takes_options, found.makes_choices, found.has_tokenizer)
    assert not any(abilities)


@pytest.mark.parametrize(
    "parts",
    [
        ['input { name: "a" data_type: TYPE_FP32 dims: [ 1 ] }', TEXT_OUT],
        [TEXT_IN, 'output { name: "a" data_type: TYPE_FP32 dims: [ 1 ] }'],
        [TEXT_IN, 'input { name: "image" data_type: TYPE_UINT8 dims: [ 1 ] }', TEXT_OUT],
        [TEXT_IN, TEXT_OUT, "sequence_batching { }"],
        [TEXT_IN, *(f'output {{ name: "{name}" data_type: TYPE_STRING dims: [ 1 ] }}' for name in "ab")],
        [
            'backend: "transformers"',
            'input { name: "audio" data_type: TYPE_STRING dims: [ 1 ] }',
            'output { name: "text" data_type: TYPE_STRING dims: [ 1 ] }',
        ],
    ],
)
def test_other_models_do_not_write(parts: list[str]) -> None:
    assert generation_form(config(*parts)) is None


@pytest.mark.parametrize(
    ("parts", "names"),
    [
        ([TEXT_IN, 'input { name: "image" data_type: TYPE_UINT8 dims: [ 1 ] }', TEXT_OUT], ["image"]),
        (
            [
                'input { name: "INPUT_0" data_type: TYPE_STRING dims: [ -1 ] }',
                'input { name: "INPUT_1" data_type: TYPE_UINT32 dims: [ -1 ] }',
                'input { name: "INPUT_2" data_type: TYPE_STRING dims: [ -1 ] optional: true }',
                'output { name: "OUTPUT_0" data_type: TYPE_STRING dims: [ -1, -1 ] }',
                'output { name: "sequence_length" data_type: TYPE_UINT32 dims: [ -1 ] }',
            ],
            ["INPUT_1"],
        ),
        (['input { name: "a" data_type: TYPE_FP32 dims: [ 1 ] }', TEXT_OUT], []),
        ([TEXT_IN, 'output { name: "a" data_type: TYPE_FP32 dims: [ 1 ] }'], []),
    ],
)
def test_what_a_model_of_texts_needs_beside_its_prompt_is_named(parts: list[str], names: list[str]) -> None:
    assert generation_form(config(*parts)) is None
    assert inputs_in_the_way(config(*parts)) == names


def test_model_that_wants_a_number_of_tokens_is_given_one() -> None:
    limit = 'input { name: "max_tokens" data_type: TYPE_INT32 dims: [ 1 ] }'
    assert form(TEXT_IN, limit, TEXT_OUT).prompt_input == "text_input"


def test_models_of_vectors() -> None:
    vector = 'output { name: "embedding" data_type: TYPE_FP32 dims: [ -1 ] }'
    found = embedding_form(config(TEXT_IN, vector))
    assert found is not None
    assert (found.text_input.name, found.vector_output) == ("text_input", "embedding")
    assert embedding_form(config(TEXT_IN, TEXT_OUT)) is None
    assert embedding_form(config(TEXT_IN, 'output { name: "embedding" data_type: TYPE_INT32 dims: [ -1 ] }')) is None
