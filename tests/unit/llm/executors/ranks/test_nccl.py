"""Two ranks that meet by NCCL: on two GPUs, or on one where NCCL lets ranks share it."""

from __future__ import annotations

import ctypes
import os
import queue
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tiny_language_models import VOCAB

from trireme.llm.engine import EngineCore
from trireme.llm.executor_choice import load_executor
from trireme.llm.options import EngineOptions
from trireme.llm.request import SequenceOutput
from trireme.llm.sampling_params import SamplingParams

FIRST_THAT_SHARES = 23000
"""The release of NCCL that takes several ranks on one GPU."""
PROMPTS = [np.random.default_rng(length).integers(3, VOCAB, length).tolist() for length in (3, 9, 14, 22)]
OPTIONS = EngineOptions(block_size=4, cache_bytes=2**20, max_step_tokens=16, ranks=2)


def can_meet() -> bool:
    if torch.cuda.device_count() > 1:
        return True
    return torch.cuda.is_available() and nccl_number() >= FIRST_THAT_SHARES


def nccl_number() -> int:
    """Of the library that is loaded, which need not be the one that PyTorch was built with."""
    number = ctypes.c_int()
    try:
        ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(number))
    except OSError:
        return 0
    return number.value


pytestmark = pytest.mark.skipif(not can_meet(), reason="needs two GPUs, or one and NCCL 2.30")


@pytest.fixture
def start(tiny_model: Any, running_engine: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    if torch.cuda.device_count() == 1:
        monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")
    cores: list[EngineCore] = []

    def begin(name: str, options: EngineOptions = OPTIONS) -> Any:
        cores.append(EngineCore(load_executor(tiny_model(name).folder, options, "cuda:0", "float32"), options))
        return running_engine(cores[-1])

    yield begin
    for core in cores:
        core.close()


@pytest.mark.parametrize("name", ["llama", "pythia", "falcon 7b", "qwen 2", "qwen 2 moe", "gpt-2"])
def test_two_ranks_on_gpus_give_the_tokens_of_one(name: str, start: Callable[..., Any], tiny_model: Any) -> None:
    engine = start(name)
    wanted = [tiny_model(name).continuation(prompt, 10) for prompt in PROMPTS]
    assert engine.tokens(PROMPTS, 10) == wanted
    assert engine.tokens(PROMPTS[2:], 10) == wanted[2:], "with beginnings that are in the caches of both"


def test_four_ranks_on_gpus_repeat_the_heads_of_keys(start: Callable[..., Any], tiny_model: Any) -> None:
    if 1 < torch.cuda.device_count() < 4:
        pytest.skip("needs four GPUs, or one that is shared")
    wanted = tiny_model("llama").continuation(PROMPTS[1], 6)
    assert start("llama", replace(OPTIONS, ranks=4)).tokens([PROMPTS[1]], 6) == [wanted]


def test_a_rank_on_a_gpu_that_is_killed_fails_what_runs_by_name(start: Callable[..., Any], tiny_model: Any) -> None:
    """The first rank waits for the sum in NCCL meanwhile, and has to come out of it."""
    engine = start("llama", replace(OPTIONS, step_timeout_s=30.0))
    process = engine.core.executor._others._ranks[0]
    pid = process.pid
    inbox: queue.Queue[SequenceOutput] = queue.Queue()

    def listen(output: SequenceOutput) -> None:
        if output.finish_reason is None:
            os.kill(pid, signal.SIGKILL)
            process.process.wait()
        inbox.put(output)

    engine.core.submit(PROMPTS[0], SamplingParams(max_tokens=20, min_tokens=20), listen)
    output = inbox.get(timeout=20)
    assert not output.error
    while output.finish_reason is None:
        output = inbox.get(timeout=40)
    assert f"rank 1 of 2 (process {pid}) was ended by SIGKILL" in output.error
    assert not engine.core.is_alive
    again = start("llama")
    assert again.tokens([PROMPTS[1]], 6) == [tiny_model("llama").continuation(PROMPTS[1], 6)]
