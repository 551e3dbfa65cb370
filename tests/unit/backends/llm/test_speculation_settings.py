"""How a model's configuration and a request ask for speculation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.llm.llm_request import LlmRequest
from trireme.backends.llm.settings import read_settings
from trireme.backends.served_engine.refusals import InvalidRequestError
from trireme.llm.options import EngineOptions, SpeculationMode


@pytest.fixture
def options(tmp_path: Path) -> Callable[..., EngineOptions]:
    """What parameters mean for a model with the folder `small` beside it."""
    for folder in (tmp_path / "1", tmp_path / "small"):
        folder.mkdir()
        (folder / "config.json").write_text("{}")

    def read(**parameters: str) -> EngineOptions:
        given = {key: {"string_value": value} for key, value in parameters.items()}
        args = {"model_repository": str(tmp_path), "model_version": "1", "model_instance_kind": "CPU"}
        return read_settings({"name": "writer", "parameters": given}, args, nullcontext).options

    return read


def test_nothing_is_guessed_unless_it_is_asked_for(options: Any) -> None:
    assert options().speculation is SpeculationMode.OFF
    found = options(speculation="ngram", speculation_tokens="4")
    assert (found.speculation, found.speculation_tokens) == (SpeculationMode.NGRAM, 4)


def test_a_draft_model_is_named_by_its_folder(options: Any, tmp_path: Path) -> None:
    found = options(draft_model="small", draft_cache_bytes="4096")
    assert (found.speculation, found.draft_model) == (SpeculationMode.DRAFT, tmp_path / "small")
    assert found.draft_cache_bytes == 4096
    assert options(speculation="off", draft_model="small").speculation is SpeculationMode.OFF


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"speculation": "medusa"}, "'speculation' of model 'writer' must be off or ngram or draft, found 'medusa'"),
        ({"speculation": "draft"}, "name the smaller model's folder with parameter 'draft_model'"),
        ({"speculation": "ngram", "draft_model": "small"}, "must be draft or off, found 'ngram'"),
        ({"speculation": "ngram", "speculation_tokens": "0"}, "'speculation_tokens' of model 'writer' must be a whole"),
        ({"draft_model": "none at all"}, "there is no language model"),
    ],
)
def test_what_cannot_be_followed_is_named(options: Any, parameters: dict[str, str], words: str) -> None:
    with pytest.raises(ModelLoadError, match=words):
        options(**parameters)


def test_a_request_can_ask_for_none(read: Callable[..., LlmRequest]) -> None:
    assert read(text="Once").params.speculates
    assert not read(text="Once", speculation=False).params.speculates
    with pytest.raises(InvalidRequestError, match="'speculation' must be true or false"):
        read(text="Once", speculation="ngram")
