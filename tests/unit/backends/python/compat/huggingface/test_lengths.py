"""`max_length` of generation and of pipelines, with libraries that behave like the releases of 4.x and of 5.x."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from trireme.backends.python.compat.huggingface import lengths


class Mixin:
    config = SimpleNamespace(max_position_embeddings=64)

    def _validate_generated_length(self, generation_config: Any, length: int, has_default: bool) -> int:
        if length >= generation_config.max_length:
            raise ValueError(f"Input length is {length}")
        return int(generation_config.max_length)


@pytest.fixture
def mixin() -> Any:
    module = ModuleType("generation")
    module.GenerationMixin = type("GenerationMixin", (Mixin,), {})  # type: ignore[attr-defined]
    lengths.continue_full_prompts(module)
    return module.GenerationMixin()


def validated(mixin: Any, length: int, limit: int, new_tokens: int | None = None, has_default: bool = False) -> int:
    config = SimpleNamespace(max_length=limit, max_new_tokens=new_tokens)
    return int(mixin._validate_generated_length(config, length, has_default))


def test_a_prompt_that_fits_is_left_to_the_library(mixin: Any, told: set[str]) -> None:
    assert validated(mixin, 14, 15) == 15
    assert told == set()


def test_a_prompt_that_is_refused_gets_one_token_and_one_warning(
    mixin: Any, told: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert validated(mixin, 15, 15) == 16
    assert validated(mixin, 40, 15) == 41
    assert told == {"prompt fills max_length"}
    assert capsys.readouterr().err.count("compat 'off'") == 1


def test_a_refusal_for_another_reason_stands(mixin: Any, told: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in ((20, 15, 5), (64, 64, None, True)):  # told how many are new; the model can hold no more
        with pytest.raises(ValueError, match="Input length"):
            validated(mixin, *arguments)
    monkeypatch.setenv("TRIREME_COMPAT", "off")
    with pytest.raises(ValueError, match="Input length"):
        validated(mixin, 15, 15)
    assert told == set()


class Pipeline:
    """Of 4.x: a default of new tokens that comes first."""

    model = SimpleNamespace(generation_config=SimpleNamespace(max_new_tokens=None))
    generation_config = SimpleNamespace(max_new_tokens=256)

    def _sanitize_parameters(self, **kwargs: Any) -> Any:
        return dict(kwargs), dict(kwargs), {}

    def preprocess(self, prompt_text: str, max_length: int | None = None, **kwargs: Any) -> Any:
        return {"input_ids": np.zeros((1, len(prompt_text.split()[:max_length])))}


class NewerPipeline(Pipeline):
    """Of 5.x: `max_length` ends a generation unless `max_new_tokens` is said."""

    generation_config = SimpleNamespace(max_new_tokens=None)

    def _prepare_generate_kwargs(self, wishes: dict[str, Any]) -> dict[str, Any]:
        return wishes

    def _get_set_generation_params(self, wishes: dict[str, Any]) -> dict[str, Any]:
        return wishes


def patched(kind: type) -> Any:
    module = ModuleType("pipelines")
    module.TextGenerationPipeline = type("TextGenerationPipeline", (kind,), {})  # type: ignore[attr-defined]
    lengths.keep_refused_prompts(module)
    lengths.respect_max_length(module)
    return module.TextGenerationPipeline()


def token_count(pipeline: Any, **kwargs: Any) -> int:
    return int(pipeline.preprocess("a prompt of five words", **kwargs)["input_ids"].shape[-1])


def test_a_prompt_that_is_cut_and_then_refused_stays_whole(told: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = patched(NewerPipeline)
    assert token_count(pipeline, max_length=3) == 5
    monkeypatch.setenv("TRIREME_COMPAT", "off")
    assert token_count(pipeline, max_length=3) == 3


@pytest.mark.parametrize(
    "kwargs",
    [
        {"max_new_tokens": 4},
        {"truncation": True},
        {"padding": "max_length"},
        {"tokenizer_encode_kwargs": {"truncation": True}},
    ],
)
def test_a_prompt_that_is_cut_and_accepted_stays_cut(told: set[str], kwargs: dict[str, Any]) -> None:
    assert token_count(patched(NewerPipeline), max_length=3, **kwargs) == 3
    assert token_count(patched(Pipeline), max_length=3, **kwargs) == 3


def test_a_release_that_never_refuses_is_left_alone(told: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = patched(Pipeline)
    for _ in range(2):
        assert pipeline._sanitize_parameters(max_length=15) == ({"max_length": 15}, {"max_length": 15}, {})
    assert token_count(pipeline, max_length=3) == 3
    (offer,) = capsys.readouterr().err.splitlines()
    assert offer.startswith("I ")
    assert offer.endswith("ignores max_length=15 and generates up to 256 new tokens; compat 'lengths' respects it")


def test_on_request_max_length_is_respected(
    told: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRIREME_COMPAT", "lengths")
    pipeline = patched(Pipeline)
    for _ in range(2):
        expected = ({}, {"max_length": 15, "max_new_tokens": None}, {})
        assert pipeline._sanitize_parameters(max_length=15) == expected
    assert capsys.readouterr().err.count("(asked for by compat 'lengths')") == 1
    given = {"max_length": 15, "max_new_tokens": 3, "truncation": True}
    assert pipeline._sanitize_parameters(**given) == (given, given, {})
