"""Requests as texts with adapters: whatever ends them, the adapter is free for others to take its place."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_adapters import write_adapters
from tiny_language_models import TinyModel
from tiny_tokenizers import byte_level, write_folder

from trireme.llm import Engine, EngineOptions, SamplingError, SamplingParams
from trireme.llm.adapters.adapter import AdapterError, UnknownAdapterError
from trireme.llm.generation import TextOutput
from trireme.llm.options import SpeculationMode

PROMPT = [5, 9, 17, 40, 3, 88, 61, 9, 17, 40]
Models = Callable[[str], TinyModel]
Start = Callable[..., Engine]


@pytest.fixture(scope="module")
def folder(tiny_model: Models, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the model with a tokenizer: others have the model itself without one."""
    copy = tmp_path_factory.mktemp("told") / "llama"
    shutil.copytree(tiny_model("llama").folder, copy)
    write_folder(copy, byte_level())
    return copy


@pytest.fixture
def merged(tiny_model: Models, tmp_path: Path) -> dict[str, TinyModel]:
    return write_adapters(tiny_model("llama"), tmp_path, ("one", "other"))


@pytest.fixture
def start(folder: Path, merged: dict[str, TinyModel], tmp_path: Path) -> Iterator[Start]:
    engines: list[Engine] = []

    def make(**options: Any) -> Engine:
        chosen = EngineOptions(adapters=tmp_path, max_adapters=1, block_size=4, cache_bytes=1 << 20, **options)
        engines.append(Engine.load(folder, device="numpy", options=chosen))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def until_free(engine: Engine) -> None:
    """Until no request uses an adapter any more: the other one can take its place then."""
    end = time.monotonic() + 20
    while any(kept.user_count for kept in engine.adapters._kept.values()):
        assert time.monotonic() < end
        time.sleep(0.005)


def test_texts_one_after_another_and_as_they_are_written(start: Start, merged: dict[str, TinyModel]) -> None:
    engine, params = start(), SamplingParams(max_tokens=8, ignores_eos=True)
    for name in ("one", "other", "one"):
        wanted = merged[name].continuation(PROMPT, 8)
        assert list(engine.generate([PROMPT, PROMPT], params, adapter=name)[1].token_ids) == wanted
        until_free(engine)
        pieces = list(engine.stream(PROMPT, params, adapter=name))
        assert [token for piece in pieces for token in piece.token_ids] == wanted
        until_free(engine)
        assert engine.adapters.kept_names == [name]


def test_choices_and_beams(start: Start, merged: dict[str, TinyModel]) -> None:
    engine = start()
    found = engine.generate(PROMPT, SamplingParams(max_tokens=6, choices=3, ignores_eos=True), adapter="one")
    assert [list(one.token_ids) for one in found] == [merged["one"].continuation(PROMPT, 6)] * 3
    until_free(engine)
    found = engine.generate(PROMPT, SamplingParams(max_tokens=6, beams=3, choices=3, ignores_eos=True), adapter="other")
    assert [list(one.token_ids) for one in found] == merged["other"].beams(PROMPT, 6, 3)
    until_free(engine)


def test_guesses_of_the_plain_model_change_nothing(start: Start, merged: dict[str, TinyModel]) -> None:
    engine = start(speculation=SpeculationMode.NGRAM, speculation_tokens=3)
    params = SamplingParams(max_tokens=30, ignores_eos=True)
    (found,) = engine.generate(PROMPT, params, adapter="one")
    assert list(found.token_ids) == merged["one"].continuation(PROMPT, 30)


def test_a_request_that_is_cancelled_overdue_or_refused_gives_its_adapter_back(start: Start) -> None:
    engine, heard = start(), list[TextOutput]()
    endless = SamplingParams(ignores_eos=True)
    engine.submit(PROMPT, endless, heard.append, adapter="one").cancel()
    until_free(engine)
    engine.submit(PROMPT, endless, heard.append, adapter="one", timeout_s=0.01)
    until_free(engine)
    with pytest.raises(SamplingError):
        engine.submit([100_000], endless, heard.append, adapter="one")
    until_free(engine)
    engine.generate(PROMPT, SamplingParams(max_tokens=2), adapter="other")


def test_names_and_files_that_are_none(start: Start, tmp_path: Path) -> None:
    engine = start()
    (tmp_path / "other" / "adapter_model.safetensors").write_bytes(b"none")
    with pytest.raises(UnknownAdapterError, match="'otter'; did you mean 'other'"):
        engine.generate(PROMPT, adapter="otter")
    with pytest.raises(AdapterError, match="too few for a header"):
        engine.generate(PROMPT, adapter="other")
    assert engine.generate(PROMPT, SamplingParams(max_tokens=2), adapter="one")
    assert engine.generate(PROMPT, SamplingParams(max_tokens=2))


def test_requests_for_more_adapters_than_are_kept_are_all_written(start: Start, merged: dict[str, TinyModel]) -> None:
    engine, heard = start(), {name: list[TextOutput]() for name in merged}
    params = SamplingParams(max_tokens=20, ignores_eos=True)
    for name in merged:  # the second waits in here until the first has ended
        engine.submit(PROMPT, params, heard[name].append, adapter=name)
    until_free(engine)
    for name, pieces in heard.items():
        assert [token for piece in pieces for token in piece.token_ids] == merged[name].continuation(PROMPT, 20)
