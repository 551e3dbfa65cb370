"""What prompts have to be made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from trireme.llm.arrivals.intake import Intake
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.request import Sequence as Written
from trireme.llm.sampling_params import SamplingError, SamplingParams
from trireme.llm.step_plan import SchedulerLimits

VOCABULARY = 50


def received(tokens: Iterable[Any], **params: Any) -> Written:
    spec = DecoderSpec("LlamaForCausalLM", VOCABULARY, 8, 1, 2, 2, 4, 16, 64)
    intake = Intake(
        spec, SchedulerLimits(block_size=4, block_count=40, max_sequences=2, max_step_tokens=64), lambda: 0.0
    )
    return intake.sequence(
        1, list(tokens), SamplingParams(**params), print, priority=0, timeout_s=None, end_ids=(), keys=None
    )


@pytest.mark.parametrize("wrong", [VOCABULARY, -1, 2**31, 2**40, -(2**70), 1.5, "7", None])
def test_an_id_that_the_model_does_not_have_is_named(wrong: object) -> None:
    with pytest.raises(SamplingError, match=f"token id {wrong} is not one of the 50 of the vocabulary"):
        received([3, 4, wrong, 5])


@pytest.mark.parametrize("params", [{"stop_ids": [50]}, {"logit_bias": {50: 1.0}}, {"bad_words": [[50]]}])
def test_so_is_one_of_the_options(params: dict[str, Any]) -> None:
    with pytest.raises(SamplingError, match="token id 50 is not one of"):
        received([3], **params)


def test_numbers_of_other_libraries_are_ids() -> None:
    written = received(np.array([3, 49, 0, 7, 8], np.int64))
    assert written.tokens == [3, 49, 0, 7, 8]


def test_blocks_are_called_as_if_they_were_asked_for_later() -> None:
    tokens = [index % VOCABULARY for index in range(43)]
    made, later = received(tokens).keys, received(tokens[:3]).keys
    assert made.up_to([], 10) == later.up_to(tokens, 10)  # nothing is left to be made
