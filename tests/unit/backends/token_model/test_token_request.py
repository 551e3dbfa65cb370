"""Requests of token models: what they may ask for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.backends.python.pb_utils.tensor import Tensor
from trireme.backends.token_model.token_request import Limits, TokenRequest, read_request
from trireme.backends.token_model.word_lists import MAX_WORDS
from trireme.llm.sampling_params import LongPromptError, SamplingError

LIMITS = Limits(end_ids=(2,), fills_with_pad=True, max_length=100, max_texts=8)


def read(
    *,
    outputs: Sequence[str] = ("output_ids",),
    limits: Limits = LIMITS,
    parameters: dict[str, Any] | None = None,
    **arrays: Any,
) -> TokenRequest:
    given = {"input_ids": np.array([[5, 6, 7]], np.int32), "request_output_len": np.array([[10]], np.int32)} | arrays
    tensors = [Tensor(name, array) for name, array in given.items()]
    request = InferenceRequest(
        model_name="m", inputs=tensors, requested_output_names=list(outputs), parameters=parameters
    )
    return read_request(request, limits, outputs, False)


def test_a_request_becomes_rows() -> None:
    found = read(input_lengths=np.array([[2]], np.int32), end_id=np.array([[9]], np.int32))
    assert [(row.tokens, row.params.max_tokens, row.end_ids) for row in found.rows] == [([5, 6], 10, (9,))]


@pytest.mark.parametrize("count", [98, 2**31 - 1])
def test_more_tokens_than_the_model_takes_are_refused(count: int) -> None:
    assert read(request_output_len=np.array([[97]], np.int32)).max_tokens == 97
    with pytest.raises(SamplingError, match=f"'request_output_len' is {count} behind a prompt of 3 tokens"):
        read(request_output_len=np.array([[count]], np.int32))


@pytest.mark.parametrize("max_length", [2, 3])
def test_a_prompt_that_leaves_no_room_is_what_is_told_of_and_not_the_answer(max_length: int) -> None:
    assert read(limits=replace(LIMITS, max_length=4), request_output_len=np.array([[1]], np.int32)).max_tokens == 1
    with pytest.raises(LongPromptError, match=f"^the prompt has 3 tokens, .* take: {max_length}$"):
        read(limits=replace(LIMITS, max_length=max_length), request_output_len=np.array([[1]], np.int32))


@pytest.mark.parametrize("beams", [9, 10**6])
def test_more_beams_than_are_written_at_once_are_refused(beams: int) -> None:
    with pytest.raises(SamplingError, match="more than the 8 texts"):
        read(beam_width=np.array([[beams]], np.int32))


def test_more_beams_than_the_model_is_for_are_refused() -> None:
    limits = replace(LIMITS, max_beams=2)
    assert read(limits=limits, beam_width=np.array([[2]], np.int32)).beams == 2
    with pytest.raises(SamplingError, match="'beam_width' is 3, and the model's parameter 'max_beam_width' allows 2"):
        read(limits=limits, beam_width=np.array([[3]], np.int32))


@pytest.mark.parametrize(
    ("name", "token"),
    [
        ("end_id", 50),
        ("end_id", -2),
        ("pad_id", 50),
        ("pad_id", -1),
        ("start_id", 50),
        ("top_p_reset_ids", 50),
        ("runtime_top_p_reset_ids", -2),
    ],
)
def test_ids_that_the_vocabulary_does_not_have_are_refused(name: str, token: int) -> None:
    given, limits = {name: np.array([[token]], np.int32)}, replace(LIMITS, vocab_size=50)
    given["runtime_top_p"] = np.array([[0.9]], np.float32)
    with pytest.raises(SamplingError, match=f"'{name}' must be a token of the vocabulary, .* to 49, found {token}"):
        read(limits=limits, **given)
    assert read(**given).rows
    ids = {"end_id": np.array([[-1]], np.int32), "pad_id": np.array([[49]], np.int32)}
    (row,) = read(limits=limits, **ids).rows
    assert (row.end_ids, row.fill) == ((), 49)


@pytest.mark.parametrize("shape", [(1, 2), (2,), (1, 51), (1, 40), (1, 1, 50)])
def test_a_bias_that_is_not_as_wide_as_the_vocabulary_is_refused(shape: tuple[int, ...]) -> None:
    limits = replace(LIMITS, vocab_size=50, tokenizer_sizes=lambda: {44, 51})
    bias = np.zeros((1, 50), np.float32)
    bias[0, 7] = 2
    for width in (50, 44):  # what the vocabulary is filled up with has no bias
        assert read(limits=limits, embedding_bias=bias[:, :width]).rows[0].params.logit_bias == {7: 2.0}
    with pytest.raises(SamplingError, match=f"^'embedding_bias' .*{re.escape(str(list(shape)))}"):
        read(limits=limits, embedding_bias=np.zeros(shape, np.float32))


@pytest.mark.parametrize("name", ["request_output_len", "runtime_top_k", "end_id"])
def test_one_prompt_takes_one_value_of_each_tensor(name: str) -> None:
    with pytest.raises(SamplingError, match=rf"^'{name}' has 2 values for a prompt, shape \[1, 2\]; it takes one"):
        read(**{name: np.array([[3, 4]], np.int32)})


@pytest.mark.parametrize("token", [-1, 50])
def test_tokens_that_the_vocabulary_does_not_have_are_told_by_their_tensor(token: int) -> None:
    limits, words = replace(LIMITS, vocab_size=50), np.array([[[5, token], [1, 2]]], np.int32)
    with pytest.raises(SamplingError, match=f"^'bad_words_list' has the token {token}, .* from 0 to 49"):
        read(limits=limits, bad_words_list=words)
    assert read(limits=limits, stop_words_list=words).rows  # which is never written, and ends nothing
    with pytest.raises(SamplingError, match=f"^'input_ids' has the token {token}, "):
        read(limits=limits, input_ids=np.array([[5, token]], np.int32))


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("min_length", np.array([[-2]], np.int32)),
        ("min_tokens", np.array([[-2]], np.int32)),
        ("runtime_top_p_decay", np.array([[-0.5]], np.float32)),
        ("top_p_decay", np.array([[-0.5]], np.float32)),
        ("runtime_top_p_min", np.array([[2]], np.float32)),
        ("embedding_bias", np.ones((1, 5000), np.float32)),
        ("embedding_bias", np.array([[np.nan, 1.0]], np.float32)),
        ("temperature", np.array([[np.nan]], np.float32)),
        ("repetition_penalty", np.array([[np.inf]], np.float32)),
    ],
)
def test_what_cannot_be_followed_is_told_by_the_name_of_its_tensor(name: str, array: Any) -> None:
    with pytest.raises(SamplingError, match=f"^'{name}' must be "):
        read(runtime_top_p=np.array([[0.9]], np.float32), **{name: array})


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_a_temperature_that_is_none_is_refused_where_it_changes_nothing(value: float) -> None:
    with pytest.raises(SamplingError, match=r"^'temperature' must be "):
        read(temperature=np.array([[value]], np.float32))
    assert read(temperature=np.array([[0.0]], np.float32)).rows[0].params.temperature == 0


@pytest.mark.parametrize("name", ["beam_width", "num_return_sequences"])
def test_all_prompts_of_a_request_have_as_many_texts(name: str) -> None:
    prompts = {"input_ids": np.array([[5, 6], [7, 8]], np.int32), "request_output_len": np.array([[3], [3]], np.int32)}
    with pytest.raises(SamplingError, match=f"'{name}' must be the same for all prompts of a request, found 1, 2"):
        read(**prompts, **{name: np.array([[2], [1]], np.int32)})
    found = read(**prompts, **{name: np.array([[2], [2]], np.int32)})
    assert found.beams * found.sequences == 2


@pytest.mark.parametrize("beams", [(("len_penalty", 1e9), 2), (("beam_search_diversity_rate", np.inf), 2)])
def test_a_search_that_cannot_be_followed_is_told_by_the_name_of_its_tensor(beams: Any) -> None:
    (name, value), count = beams
    with pytest.raises(SamplingError, match=f"^'{name}' must be within 100 of 0"):
        read(beam_width=np.array([[count]], np.int32), **{name: np.array([[value]], np.float32)})


def test_a_prompt_without_tokens_is_its_start() -> None:
    empty, start = np.zeros((1, 0), np.uint32), np.array([[8]], np.uint32)
    found = read(input_ids=empty, input_lengths=np.array([[0]], np.uint32), start_id=start)
    assert (found.rows[0].tokens, found.prompt_width) == ([8], 1)
    assert read(start_id=start).rows[0].tokens == [5, 6, 7]
    with pytest.raises(SamplingError, match="'input_ids' has no tokens: a prompt has at least one"):
        read(input_ids=empty)


def test_a_prompt_without_tokens_and_start_begins_as_the_checkpoint_says() -> None:
    limits, none = replace(LIMITS, start_id=4), np.array([[0]], np.uint32)
    assert read(limits=limits, input_lengths=none).rows[0].tokens == [4]
    assert read(limits=limits, input_lengths=none, start_id=np.array([[8]], np.uint32)).rows[0].tokens == [8]
    assert read(limits=limits).rows[0].tokens == [5, 6, 7]
    with pytest.raises(SamplingError, match="'request_output_len' is 100 behind a prompt of 1 tokens"):
        read(limits=limits, input_lengths=none, request_output_len=np.array([[100]], np.int32))


@pytest.mark.parametrize("none", [np.array([[-1]], np.int32), np.array([[2**32 - 1]], np.uint32)])
def test_no_token_may_bring_top_p_back(none: Any) -> None:
    given = {"runtime_top_p": np.array([[0.9]], np.float32), "top_p_reset_ids": none}
    assert read(limits=replace(LIMITS, vocab_size=50), **given).rows[0].params.top_p_reset_id is None


REALS = {"top_p_decay": 0.5, "top_p_min": 0.2}


@pytest.mark.parametrize("prefix", ["", "runtime_"])
def test_top_p_may_decay_where_no_top_k_stands_before_it(prefix: str) -> None:
    given = {prefix + name: np.array([[value]], np.float32) for name, value in REALS.items()}
    given |= {"runtime_top_p": np.array([[0.9]], np.float32), f"{prefix}top_p_reset_ids": np.array([[4]], np.uint32)}
    params = read(**given).rows[0].params
    assert (params.top_p_decay, round(params.top_p_min, 6), params.top_p_reset_id) == (0.5, 0.2, 4)
    params = read(**given, runtime_top_k=np.array([[5]], np.uint32)).rows[0].params
    assert (params.top_k, params.top_p_decay, params.top_p_reset_id) == (5, 1.0, None)


def test_a_decay_that_grows_is_refused() -> None:
    given = {"runtime_top_p": np.array([[0.9]], np.float32), "top_p_decay": np.array([[1.5]], np.float32)}
    with pytest.raises(SamplingError, match="'top_p_decay' must be above 0 and at most 1"):
        read(**given)


def test_a_search_is_told_of_length_diversity_and_its_end() -> None:
    given = {"len_penalty": 0.5, "beam_search_diversity_rate": 0.25}
    arrays = {name: np.array([[value]], np.float32) for name, value in given.items()}
    params = read(**arrays, beam_width=np.array([[3]]), early_stopping=np.array([[True]])).rows[0].params
    found = (params.beams, params.choices, params.length_penalty, params.diversity_rate, params.early_stopping)
    assert found == (3, 3, 0.5, 0.25, True)
    assert read(beam_width=np.array([[3]])).rows[0].params.length_penalty == LIMITS.length_penalty


@pytest.mark.parametrize(
    ("name", "array", "words"),
    [
        ("prompt_embedding_table", np.ones((1, 2, 4), np.float16), "no embeddings are put in"),
        ("prompt_learning_task_name_ids", np.array([[0]], np.uint32), "no embeddings are put in"),
        ("request_prompt_embedding", np.ones((1, 2, 4), np.float16), "no embeddings are put in"),
        ("lora_weights", np.ones((1, 2, 4), np.float16), "peft's folders"),
        ("lora_config", np.ones((1, 2, 3), np.int32), "peft's folders"),
        ("encoder_input_features", np.ones((1, 2, 4), np.float16), "the model has no encoder"),
        ("mrope_position_deltas", np.array([[4]]), "tokens stand where they are"),
        ("context_phase_params", np.array([[4]], np.uint8), "send the request to one model"),
        ("return_generation_logits", np.array([[True]]), "no logits are given"),
    ],
)
def test_what_cannot_be_followed_is_refused_with_a_reason(name: str, array: Any, words: str) -> None:
    with pytest.raises(SamplingError, match=f"'{name}' cannot be followed: .*{words}"):
        read(**{name: array})


@pytest.mark.parametrize(
    "parameter",
    [{"num_return_sequences": 2}, {"seed": 7}, {"temperature": 0}, {"end_id": 0}],
)
def test_what_came_as_a_parameter_and_would_change_an_answer_is_refused(parameter: dict[str, Any]) -> None:
    (name,) = parameter
    with pytest.raises(SamplingError, match=f"^'{name}' came as a parameter .* among the inputs of the model's config"):
        read(parameters=parameter)


@pytest.mark.parametrize("parameter", [{"return_context_logits": True}, {"guided_decoding_guide": "[a-z]"}])
def test_what_cannot_be_followed_is_refused_where_it_is_a_parameter(parameter: dict[str, Any]) -> None:
    (name,) = parameter
    with pytest.raises(SamplingError, match=f"^'{name}' cannot be followed: "):
        read(parameters=parameter)


def test_parameters_that_change_nothing_are_let_be() -> None:
    nothing = {"num_return_sequences": 1, "return_context_logits": False, "seed": 0, "temperature": 1, "mine": "a"}
    assert read(parameters=nothing).rows == read().rows


def test_all_prompts_have_one_adapter() -> None:
    limits = replace(LIMITS, has_adapters=True)
    prompts = {"input_ids": np.array([[5], [6]], np.int32)}
    tasks = np.array([[2**63], [2**63]], np.uint64)
    assert read(limits=limits, **prompts, lora_task_id=tasks).adapter == 2**63
    assert read(limits=limits, lora_task_id=np.array([[0]], np.uint64)).adapter == 0
    assert read(limits=limits).adapter is None
    with pytest.raises(SamplingError, match=r"'lora_task_id' must be the same for all prompts .*, found 1, 2"):
        read(limits=limits, **prompts, lora_task_id=np.array([[1], [2]], np.uint64))


def test_a_model_without_adapters_names_the_parameter_that_it_needs() -> None:
    with pytest.raises(SamplingError, match=r"'lora_task_id' is 7, and the model has no adapters.*'lora_prefetch_dir'"):
        read(lora_task_id=np.array([[7]], np.uint64))


def test_flags_that_ask_for_nothing_are_let_be() -> None:
    assert read(return_context_logits=np.array([[False]]), draft_input_ids=np.array([[1, 2]], np.int32)).rows
    assert read(decoder_input_ids=np.array([[2]]), decoder_input_lengths=np.array([1])).rows  # as ensembles send them
    assert read().has_prompt is None
    assert read(exclude_input_in_output=np.array([[True]])).has_prompt is False


@pytest.mark.parametrize(("length", "seed"), [("min_length", "random_seed"), ("min_tokens", "seed")])
def test_the_least_length_and_the_seed_are_read_under_either_releases_names(length: str, seed: str) -> None:
    params = read(**{length: np.array([[4]], np.int32), seed: np.array([[11]], np.uint64)}).rows[0].params
    assert (params.min_tokens, params.seed) == (4, 11)


@pytest.mark.parametrize(
    ("name", "array", "words"),
    [
        ("num_return_sequences", np.array([[0]], np.int32), "'num_return_sequences' must be at least 1"),
        ("num_return_sequences", np.array([[9]], np.int32), "more than the 8 texts"),
        ("guided_decoding_guide_type", np.array([["json"]], np.object_), "'guided_decoding_guide_type' cannot be"),
    ],
)
def test_what_would_change_an_answer_and_is_not_followed_is_refused(name: str, array: Any, words: str) -> None:
    with pytest.raises(SamplingError, match=words):
        read(**{name: array})


def test_counts_of_tokens_are_told_to_who_asks_for_them() -> None:
    names = ["output_ids", "num_input_tokens", "num_output_tokens"]
    flag = np.array([[True]])
    assert read(outputs=names).outputs == {"output_ids"}
    assert read(outputs=names, return_num_input_tokens=flag).outputs == {"output_ids", "num_input_tokens"}


def test_texts_that_are_answered_apart_have_places_and_seeds_of_their_own() -> None:
    prompts, count = np.array([[5, 6], [7, 8]], np.int32), np.array([[3], [4]], np.int32)
    seed, two = np.array([[2**64 - 1], [10]], np.uint64), np.array([[2], [2]], np.int32)
    parts = read(input_ids=prompts, request_output_len=count, seed=seed, num_return_sequences=two).apart()
    found = [(part.batch_index, part.sequence_index, part.rows[0].tokens, part.rows[0].params.seed) for part in parts]
    assert found == [(0, 0, [5, 6], 2**64 - 1), (0, 1, [5, 6], 0), (1, 0, [7, 8], 10), (1, 1, [7, 8], 11)]
    assert [(part.max_tokens, part.sequences) for part in parts] == [(3, 1), (3, 1), (4, 1), (4, 1)]
    with pytest.raises(SamplingError, match="'num_return_sequences' must be at least 1, and 1 with several beams"):
        read(num_return_sequences=np.array([[2]], np.int32), beam_width=np.array([[2]], np.int32))


@pytest.mark.parametrize(("end", "ends"), [(9, (9,)), (0, (0,)), (-1, ())])
def test_an_end_below_zero_is_none(end: int, ends: tuple[int, ...]) -> None:
    row = read(end_id=np.array([[end]], np.int32), pad_id=np.array([[4]], np.int32)).rows[0]
    assert (row.end_ids, row.fill) == (ends, 4)


@pytest.mark.parametrize("name", ["bad_words_list", "stop_words_list"])
def test_lists_of_words_have_a_bound(name: str) -> None:
    most = np.array([[[5] * MAX_WORDS, [*range(1, MAX_WORDS + 1)]]], np.int32)
    (row,) = read(**{name: most}).rows
    assert len(row.stop_words or row.params.bad_words) == MAX_WORDS
    many = np.array([[[5] * 2000, [*range(1, 2001)]]], np.int32)
    with pytest.raises(SamplingError, match=f"'{name}' has 2000 words in 2000 ids; it may have 1024 in 65536"):
        read(**{name: many})
    with pytest.raises(SamplingError, match=f"'{name}' has 1 words in 70000 ids"):
        read(**{name: np.array([[[5] * 70000, [70000, *[-1] * 69999]]], np.int32)})
