"""Engines that speculate, as they are started and asked: which models can, for whom they do, and what is told of it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trireme.backends.served_engine.metrics import EngineMetrics
from trireme.llm import Engine, EngineOptions, SamplingParams
from trireme.llm.engine import EngineCore
from trireme.llm.executors.numpy.executor import NumpyExecutor
from trireme.llm.executors.port import ExecutorError
from trireme.llm.generation import TextOutput
from trireme.llm.models.catalog import load_weights, read_spec
from trireme.llm.options import SpeculationMode
from trireme.llm.speculation.executor_pair import load_executors

SHIPPED = Path(__file__).parents[4] / "examples" / "model_repository" / "scribe" / "1"
NGRAM = EngineOptions(cache_bytes=2**22, speculation=SpeculationMode.NGRAM)
TEXT = "The cat sat on the mat. The cat sat on the mat. The cat sat on"


def with_draft(folder: Path) -> EngineOptions:
    return replace(NGRAM, speculation=SpeculationMode.DRAFT, draft_model=folder)


@pytest.fixture(scope="module")
def plain() -> Any:
    with Engine.load(SHIPPED, device="numpy", options=EngineOptions(cache_bytes=2**22)) as engine:
        yield engine


@pytest.fixture(scope="module")
def drafting() -> Any:
    with Engine.load(SHIPPED, device="numpy", options=with_draft(SHIPPED)) as engine:
        yield engine


@pytest.mark.parametrize("stop", ["on", "t. The", "cat sat"])
def test_a_stop_string_amid_verified_tokens_cuts_text_tokens_and_probabilities(
    plain: Engine, drafting: Engine, stop: str
) -> None:
    params = SamplingParams(max_tokens=40, stop=(stop,), logprobs=1, ignores_eos=True)
    (wanted,), (found,) = plain.generate(TEXT, params), drafting.generate(TEXT, params)
    assert (found.text, found.token_ids, found.finish_reason) == (wanted.text, wanted.token_ids, wanted.finish_reason)
    assert [entry.rank for entry in found.logprobs] == [entry.rank for entry in wanted.logprobs]
    assert len(found.logprobs) == len(found.token_ids)
    assert found.usage == wanted.usage


def test_several_choices_are_the_same(plain: Engine, drafting: Engine) -> None:
    params = SamplingParams(max_tokens=20, choices=3, temperature=0.9, seed=5)
    assert [one.text for one in drafting.generate(TEXT, params)] == [one.text for one in plain.generate(TEXT, params)]


def test_a_request_can_do_without(drafting: Engine) -> None:
    before = drafting.core.stats()
    drafting.generate(TEXT, SamplingParams(max_tokens=20, speculates=False))
    assert drafting.core.stats().draft_tokens == before.draft_tokens
    drafting.generate(TEXT, SamplingParams(max_tokens=20))
    after = drafting.core.stats()
    assert after.draft_tokens > before.draft_tokens
    assert 0 < after.accepted_share <= 1


def test_grammars_and_beams_are_followed_without_guesses(plain: Engine, drafting: Engine) -> None:
    before = drafting.core.stats().draft_tokens
    beams = SamplingParams(max_tokens=12, beams=3, choices=2)
    assert [one.text for one in drafting.generate(TEXT, beams)] == [one.text for one in plain.generate(TEXT, beams)]
    pytest.importorskip("llguidance")
    grammar = drafting.grammars.regex("(yes|no){3}")
    assert drafting.generate(TEXT, SamplingParams(max_tokens=12, grammar=grammar))[0].text[:2] in ("ye", "no")
    assert drafting.core.stats().draft_tokens == before


def test_guesses_are_told_with_the_last_output(drafting: Engine) -> None:
    outputs: list[TextOutput] = list(drafting.stream(TEXT, SamplingParams(max_tokens=30, ignores_eos=True)))
    times = outputs[-1].times
    assert times is not None
    assert times.drafted >= times.accepted > 0
    assert len(outputs) < 30, "several tokens come at once"
    told = EngineMetrics.durations(outputs[-1], 1)
    assert told["draft_tokens"] == (times.drafted, 0)
    assert told["accepted_tokens"] == (times.accepted, 0)


def test_a_model_with_other_tokens_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(SHIPPED, other)
    file = other / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    first, second = sorted(vocabulary, key=vocabulary.get)[300:302]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    file.write_text(json.dumps(tokenizer))
    with pytest.raises(ExecutorError, match=r"another vocabulary: token \d+ is b'.*' there and b'.*' in the model"):
        load_executors(SHIPPED, with_draft(other), "numpy")


def test_a_model_of_another_size_is_refused_where_nobody_knows_the_tokens(tiny_model: Any) -> None:
    with pytest.raises(ExecutorError, match=r"has 128 tokens and the model \d+: both need the same vocabulary"):
        load_executors(SHIPPED, with_draft(tiny_model("llama").folder), "numpy")


def test_a_draft_model_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ExecutorError, match="there is no folder"):
        load_executors(SHIPPED, with_draft(tmp_path / "none"), "numpy")


class OwnCache(NumpyExecutor):
    """As one that keeps keys and values itself."""

    takes_drafts = False


def test_a_model_that_cannot_verify_is_refused() -> None:
    spec = read_spec(SHIPPED)
    executor = OwnCache(spec, load_weights(SHIPPED, spec), NGRAM)
    with pytest.raises(ExecutorError, match="speculation needs a model whose keys and values are in the engine's"):
        EngineCore(executor, NGRAM)
    with pytest.raises(ExecutorError, match="draft model needs one"):
        EngineCore(NumpyExecutor(spec, load_weights(SHIPPED, spec), NGRAM), with_draft(SHIPPED))


def test_tokens_beyond_the_other_models_vocabulary_are_neither_shown_nor_taken(
    tiny_model: Any, speculating: Any, request_of: Any
) -> None:
    """A table may have more rows than there are tokens, and another number of them in each model."""
    folder = tiny_model("llama").folder
    plain = speculating(folder, "off")
    spec = read_spec(folder)
    options = EngineOptions(block_size=4, cache_bytes=2**22, speculation=SpeculationMode.DRAFT)
    smaller = replace(spec, vocab_size=100)
    weights = ((name, _cut(name, weight)) for name, weight in load_weights(folder, spec))
    draft = NumpyExecutor(smaller, weights, options)
    core = EngineCore(NumpyExecutor(spec, load_weights(folder, spec), options), options, draft=draft)
    engine = type(plain)(core)
    requests = [request_of([token, 5, 9], SamplingParams(max_tokens=30)) for token in (7, 99, 100, 127)]
    assert engine.tokens(requests) == plain.tokens(requests)
    core.close()


def _cut(name: str, weight: Any) -> Any:
    if name not in ("embed.weight", "head.weight"):
        return weight
    return replace(weight, array=weight.array[:100])
