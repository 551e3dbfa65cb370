"""What is made ready on a GPU before it is needed, and that nothing is left to compile behind it."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from trireme.llm.engine import EngineCore  # noqa: E402
from trireme.llm.executor_choice import load_executor  # noqa: E402
from trireme.llm.executors.cuda.prompt_sizes import PROMPT_BUCKETS, PromptSizes  # noqa: E402
from trireme.llm.executors.cuda.warm_ups import Preparations  # noqa: E402
from trireme.llm.options import EngineOptions, WarmUpMode  # noqa: E402
from trireme.llm.sampling_params import SamplingParams  # noqa: E402

SIZE = {"vocab_size": 512, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
CONFIGS: dict[str, Any] = {
    "llama": lambda: transformers.LlamaConfig(**SIZE, intermediate_size=256, num_key_value_heads=2),
    "falcon": lambda: transformers.FalconConfig(**SIZE, multi_query=True, parallel_attn=True, bias=False),
}


class EvenTokens:
    """A grammar of even numbers, and its state."""

    cost_s = later_cost_s = advance_s = 0.0
    is_finished = False
    error = ""

    def start(self) -> EvenTokens:
        return self

    def allowed(self, vocab_size: int) -> Any:
        return np.packbits(np.arange(vocab_size) % 2 == 0, bitorder="little")

    def advance(self, token: int) -> None:
        assert token % 2 == 0


WISHES: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.7},
    {"temperature": 1.0, "top_k": 20, "top_p": 0.8},
    {"temperature": 1.0, "top_p": 0.9},
    {"temperature": 1.0, "min_p": 0.1, "logprobs": 2},
    {"grammar": EvenTokens()},
    {"temperature": 1.0, "grammar": EvenTokens(), "repetition_penalty": 1.1},
)


def test_what_almost_every_request_needs_comes_first_and_large_steps_soon() -> None:
    made: list[Any] = []
    prepare = Preparations(
        lambda *sizes: made.append(("batch", *sizes)),
        made.append,
        lambda one: made.append([one]),
        lambda: made.append("draws"),
    )
    kinds = prepare.warm_ups([1, 2, 4], 4096, 8, verifies=False)
    assert [kind.is_first for kind in kinds] == [True, True] + [False] * (len(kinds) - 2)
    for kind in kinds:
        kind.run()
    assert made[:2] == [("batch", 1, 256), PromptSizes(PROMPT_BUCKETS[0])]
    assert made[2] == "draws"
    assert made[3:6] == [[PromptSizes(PROMPT_BUCKETS[-1] + 1, samples=count)] for count in (16, 32, 64)]
    assert len({kind.name for kind in kinds}) == len(kinds) == len({str(one) for one in made})
    assert {one[1:] for one in made if one[0] == "batch"} == {
        (n, reach) for n in (1, 2, 4) for reach in (256, 1024, 4096)
    }
    assert made[-1] == PromptSizes(256, 8)


@pytest.mark.parametrize(("longest", "splits", "reaches"), [(200, 1, {256}), (1024, 1, {256, 1024})])
def test_a_model_of_short_texts_has_fewer_kinds(longest: int, splits: int, reaches: set[int]) -> None:
    made: list[Any] = []
    prepare = Preparations(lambda *sizes: made.append(sizes), lambda one: None, lambda one: None, lambda: None)
    kinds = prepare.warm_ups([1, 2], longest, splits, verifies=False)
    for kind in kinds:
        kind.run()
    assert {reach for _, reach in made} == reaches
    assert not [kind.name for kind in kinds if "further" in kind.name or "drafts" in kind.name]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("name", CONFIGS)
def test_nothing_is_compiled_any_more_after_the_warm_up(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import triton

    config = CONFIGS[name]()
    transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(tmp_path)
    options = EngineOptions(max_sequences=64, max_step_tokens=2048, cache_bytes=2**26, warm_up=WarmUpMode.LOAD)
    engine = EngineCore(load_executor(tmp_path, options, "cuda", "bfloat16"), options)
    compiled: list[str] = []
    monkeypatch.setattr(triton.knobs.compilation, "listener", lambda **found: compiled.append(str(found["src"].fn)))
    draw = random.Random(3)
    try:
        for count in (1, 3, 20, 40, 63, 64, 9, 3, 57):
            ask(engine, [prompt(draw) for _ in range(count)], draw)
    finally:
        engine.close()
    assert compiled == []


def prompt(draw: random.Random) -> list[int]:
    """Often the beginning of others, which the cache has then."""
    length, known = draw.choice([3, 17, 60, 128, 300, 900]), [(7 * place) % 500 for place in range(800)]
    fresh = [draw.randrange(512) for _ in range(length)]
    return known + fresh if draw.random() < 0.3 else fresh


def ask(engine: EngineCore, prompts: list[list[int]], draw: random.Random) -> None:
    ended = threading.Semaphore(0)
    errors: list[str] = []

    def listen(output: Any) -> None:
        if output.finish_reason is not None:
            errors.append(output.error)
            ended.release()

    for tokens in prompts:
        params = SamplingParams(max_tokens=draw.choice([1, 4, 20, 40]), ignores_eos=True, **draw.choice(WISHES))
        engine.submit(tokens, params, listen)
    for _ in prompts:
        assert ended.acquire(timeout=60)
    assert not any(errors), errors
