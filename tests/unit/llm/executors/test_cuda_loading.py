"""What an older GPU gets in place of what it cannot do; the GPU is one by its compute capability alone."""

from __future__ import annotations

import importlib.util
import logging
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from trireme.llm.executors.cuda import loading  # noqa: E402
from trireme.llm.executors.port import ExecutorError  # noqa: E402
from trireme.llm.executors.torch.weights import to_packed  # noqa: E402
from trireme.llm.kernels import launch  # noqa: E402
from trireme.llm.models.quantized import to_float32  # noqa: E402
from trireme.llm.options import CacheType, EngineOptions  # noqa: E402
from trireme.llm.quantization.rounding import round_matrix  # noqa: E402

GPU = torch.device("cuda", 0)
SPEC: Any = None  # nobody asks for it any more


@pytest.fixture
def capability(monkeypatch: pytest.MonkeyPatch) -> Any:
    def of(major: int, minor: int) -> None:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (major, minor))

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True if name == "triton" else find(name))
    return of


@pytest.mark.parametrize(
    ("number", "cache", "reason"),
    [
        ((7, 5), CacheType.AUTO, "GPUs of compute capability 7.5, only 8.0 or later"),
        ((8, 0), CacheType.FP8, "a cache of float8 on compute capability 8.0, only on 8.9 or later"),
    ],
)
def test_the_kernels_say_which_gpus_they_are_for(
    number: tuple[int, int], cache: CacheType, reason: str, capability: Any
) -> None:
    capability(*number)
    assert loading._why_not_kernels(SPEC, EngineOptions(cache_type=cache), GPU) == reason


def test_amd_is_told_apart(monkeypatch: pytest.MonkeyPatch, capability: Any) -> None:
    capability(9, 4)
    assert launch.why_not(GPU) == ""
    monkeypatch.setattr(torch.version, "hip", "6.2")
    assert launch.why_not(GPU) == "AMD's GPUs"


@pytest.mark.parametrize(("number", "wanted"), [((8, 0), 1000 + 300), ((8, 9), 1000)])
def test_room_is_asked_for_what_is_unpacked_alone(
    number: tuple[int, int], wanted: int, capability: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four bits, and whole numbers of eight, stay as they are on every GPU."""
    asked = []

    def check_room(*given: Any) -> None:
        asked.append(given[-1])
        raise ExecutorError("enough")

    capability(*number)
    monkeypatch.setattr(loading, "usable_bytes", lambda place, options: 10_000)
    monkeypatch.setattr(loading, "cuda_device", lambda device: GPU)
    monkeypatch.setattr(loading, "_why_not_kernels", lambda *given: "")
    monkeypatch.setattr(loading, "check_room", check_room)
    with pytest.raises(ExecutorError, match="enough"):
        loading.load_on_cuda(SPEC, (), EngineOptions(), "bfloat16", "cuda", 1000, 300)
    assert asked == [wanted]


def test_weights_of_float8_are_unpacked_where_the_gpu_lacks_it(
    capability: Any, caplog: pytest.LogCaptureFixture
) -> None:
    capability(8, 6)
    matrix = np.random.default_rng(0).normal(size=(32, 64)).astype(np.float32)
    small, whole = round_matrix(matrix, "fp8"), round_matrix(matrix, "int8")
    named = [("a", to_packed(small)), ("b", to_packed(whole)), ("c", torch.ones(2)), ("d", to_packed(small))]
    with caplog.at_level(logging.INFO):
        given = dict(loading._without_fp8(named, GPU, torch.bfloat16))
    assert torch.equal(given["a"], torch.from_numpy(to_float32(small)).to(torch.bfloat16))
    assert torch.equal(given["d"], given["a"])
    assert given["b"] is named[1][1]
    assert given["c"] is named[2][1]
    assert [record.message for record in caplog.records] == [
        "weights of float8 are unpacked to torch.bfloat16: our kernels do not cover float8 on compute capability 8.6, "
        "only on 8.9 or later"
    ]
