"""How much of a GPU's memory a model and its cache may take; the GPU is one by what it says of its memory alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from trireme.llm.executors.limits import limits_for  # noqa: E402
from trireme.llm.executors.port import ExecutorError  # noqa: E402
from trireme.llm.executors.torch.memory import cache_bytes, usable_bytes, what_is_usable  # noqa: E402
from trireme.llm.models.spec import DecoderSpec  # noqa: E402
from trireme.llm.options import EngineOptions  # noqa: E402

GPU = torch.device("cuda", 0)
GIB = 2**30
SPEC = DecoderSpec("LlamaForCausalLM", 100, 64, 2, 4, 4, 16, 96, 128)

Told = Callable[[float, float], None]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Told:
    """A GPU of 100 GiB: what is free of it, and what this process has taken, both in GiB."""

    def tells(free: float, own: float) -> None:
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (int(free * GIB), 100 * GIB))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device=None: int(own * GIB))

    return tells


def room(options: EngineOptions) -> float:
    return round(cache_bytes(GPU, options) / GIB, 3)


def test_a_share_of_the_cache_is_one_of_what_the_weights_left_free(gpu: Told) -> None:
    gpu(61, 39)
    assert room(EngineOptions(cache_share=0.5)) == 30
    assert room(EngineOptions(cache_share=1.0)) == 60
    gpu(21, 39)  # others have 40 by now
    assert room(EngineOptions(cache_share=0.5)) == 10


def test_a_share_of_the_gpu_counts_the_weights(gpu: Told) -> None:
    gpu(60, 40)
    assert room(EngineOptions(memory_share=0.9)) == 49
    assert room(EngineOptions(memory_share=0.5)) == 9
    assert room(EngineOptions(memory_share=0.3)) < 0


def test_two_models_have_their_shares_of_one_gpu(gpu: Told) -> None:
    options = EngineOptions(memory_share=0.4)
    gpu(100, 0)
    assert usable_bytes(GPU, options) == 40 * GIB
    gpu(60, 0)
    assert usable_bytes(GPU, options) == 40 * GIB
    gpu(45, 15)
    assert room(options) == 24


def test_a_share_that_others_have_taken_is_not_promised(gpu: Told) -> None:
    gpu(30, 0)
    assert usable_bytes(GPU, EngineOptions(memory_share=0.9)) == 25 * GIB
    assert usable_bytes(GPU, EngineOptions(memory_share=1.0)) == 30 * GIB


def test_more_of_a_reserve_is_less_of_a_cache(gpu: Told) -> None:
    gpu(60, 40)
    assert cache_bytes(GPU, EngineOptions(memory_share=0.9), 10 * GIB) == 40 * GIB
    assert cache_bytes(GPU, EngineOptions(cache_share=0.5), 10 * GIB) == 25 * GIB


def test_too_little_is_told_with_the_share_that_was_asked_for(gpu: Told) -> None:
    gpu(0.5, 90)
    for options, name in ((EngineOptions(), "memory_share"), (EngineOptions(cache_share=0.5), "cache_share")):
        with pytest.raises(ExecutorError, match=f"raise {name}, or free memory"):
            limits_for(SPEC, options, cache_bytes(GPU, options))
    assert what_is_usable(GPU, EngineOptions()) == "90% of cuda:0 leave {} for it (memory_share)"
    assert what_is_usable(GPU, EngineOptions(cache_share=0.5), "rank 1") == "cuda:0 has {} free for rank 1"
