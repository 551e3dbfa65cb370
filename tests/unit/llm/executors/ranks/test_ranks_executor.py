"""Two real ranks on the processor: the tokens of one, and what happens when one of them ends or cannot be had."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from packable_models import PROMPTS as PACKED_PROMPTS
from packable_models import packable_llama
from tiny_language_models import VOCAB, TinyModel

from trireme.llm.engine import EngineCore
from trireme.llm.executor_choice import load_executor
from trireme.llm.executors.port import ExecutorError
from trireme.llm.executors.ranks import group, loading, processes
from trireme.llm.executors.ranks.loading import rank_devices
from trireme.llm.executors.ranks.part import load_part
from trireme.llm.executors.ranks.processes import RankError
from trireme.llm.executors.ranks.program import start_rank
from trireme.llm.options import EngineOptions, SpeculationMode
from trireme.llm.quantization.builder import BuildOptions, build
from trireme.llm.request import SequenceOutput
from trireme.llm.sampling_params import SamplingParams

PROMPTS = [np.random.default_rng(length).integers(3, VOCAB, length).tolist() for length in (3, 9, 14, 22)]
RANKS = EngineOptions(block_size=4, cache_bytes=2**18, max_step_tokens=16, ranks=2)
FIRST_RANK = Path(__file__).with_name("first_rank.py")

Start = Callable[..., Any]


@pytest.fixture
def start(tiny_model: Callable[[str], TinyModel], running_engine: Any) -> Iterator[Start]:
    """An engine for a recipe on some ranks, in one process more for each rank beyond the first."""
    cores: list[EngineCore] = []

    def begin(name: str, options: EngineOptions = RANKS) -> Any:
        executor = load_executor(tiny_model(name).folder, options, "cpu", "float32")
        cores.append(EngineCore(executor, options))
        return running_engine(cores[-1])

    yield begin
    for core in cores:
        core.close()


def rank_of(engine: Any) -> int:
    """The process of the second rank."""
    return int(engine.core.executor._others._ranks[0].pid)


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:1]
    except OSError:
        return False


def wait_until(is_so: Callable[[], bool], timeout_s: float = 20.0) -> None:
    end = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("name", ["llama", "pythia", "falcon 7b", "falcon rw", "qwen 2", "qwen 2 moe", "gpt-2"])
def test_two_ranks_give_the_tokens_of_one(name: str, start: Start, tiny_model: Any) -> None:
    engine = start(name)
    wanted = [tiny_model(name).continuation(prompt, 10) for prompt in PROMPTS]
    assert engine.tokens(PROMPTS, 10) == wanted
    assert engine.tokens(PROMPTS[2:], 10) == wanted[2:], "with beginnings that are in the caches of both"


def test_samples_beams_and_probabilities_are_those_of_one(start: Start, tiny_model: Any, start_engine: Any) -> None:
    engine, one = start("llama"), start_engine(tiny_model("llama").folder, kind="torch")
    assert engine.beams(PROMPTS[1], 6, 3) == one.beams(PROMPTS[1], 6, 3)
    params = [SamplingParams(max_tokens=8, temperature=0.8, seed=1, logprobs=2), SamplingParams(prompt_logprobs=1)]
    for ours, theirs in zip(*(each.answers(PROMPTS[:2], params) for each in (engine, one)), strict=True):
        assert [output.token_ids for output in ours] == [output.token_ids for output in theirs]
        for found, wanted in zip(ours, theirs, strict=True):
            assert [place.logprob for place in found.logprobs] == pytest.approx(
                [place.logprob for place in wanted.logprobs], abs=1e-4
            )
            assert len(found.prompt_logprobs or ()) == len(wanted.prompt_logprobs or ())


def test_guesses_are_verified_by_all_ranks(start: Start, tiny_model: Any) -> None:
    wanted = [tiny_model("llama").continuation(prompt, 16) for prompt in PROMPTS]
    guessing = replace(RANKS, speculation=SpeculationMode.NGRAM, speculation_tokens=3)
    assert start("llama", guessing).tokens(PROMPTS, 16) == wanted


def test_a_folder_built_for_two_ranks_runs_on_two_with_its_numbers_and_its_cache(
    tmp_path: Path, running_engine: Any
) -> None:
    model = packable_llama(tmp_path / "model")
    folder = tmp_path / "engine"
    wishes = BuildOptions(model.folder, folder, "int8", kv_cache="fp8", tensor_parallel=2, measures_perplexity=False)
    build(wishes, lambda *_: None)
    options = EngineOptions(block_size=4, cache_bytes=2**18, max_step_tokens=16)
    found = {}
    for count in (None, 1):
        core = EngineCore(load_executor(folder, replace(options, ranks=count), "cpu", "float32"), options)
        found[type(core.executor).__name__] = running_engine(core).tokens(PACKED_PROMPTS, 8)
        core.close()
    assert sorted(found) == ["RanksExecutor", "TorchExecutor"]
    assert found["RanksExecutor"] == found["TorchExecutor"]


def test_a_folder_for_ranks_that_do_not_divide_the_model_is_not_built(tmp_path: Path) -> None:
    model = packable_llama(tmp_path / "model")
    with pytest.raises(ExecutorError, match=r"cannot be divided among 3 ranks .*: it has 4 attention heads"):
        build(BuildOptions(model.folder, tmp_path / "engine", tensor_parallel=3), lambda *_: None)
    assert not (tmp_path / "engine").exists()


def test_four_ranks_repeat_the_heads_of_keys(start: Start, tiny_model: Any) -> None:
    wanted = tiny_model("llama").continuation(PROMPTS[1], 6)
    assert start("llama", EngineOptions(block_size=4, cache_bytes=2**18, ranks=4)).tokens([PROMPTS[1]], 6) == [wanted]


def test_a_rank_holds_its_share_and_ends_with_the_engine(start: Start) -> None:
    engine = start("llama")
    executor, pid = engine.core.executor, rank_of(engine)
    assert executor._model._weights.layers[0].qkv.matrix.shape == (32, 32)
    assert executor._model._weights.embed.shape == (VOCAB // 2, 32)
    folder = executor._meeting_folder
    assert is_running(pid)
    engine.core.close()
    assert not is_running(pid)
    assert not folder.exists()


def test_a_rank_that_is_killed_fails_what_runs_by_name(start: Start) -> None:
    engine = start("llama", EngineOptions(block_size=4, cache_bytes=2**20, ranks=2))
    pid = rank_of(engine)
    inbox: queue.Queue[SequenceOutput] = queue.Queue()

    def listen(output: SequenceOutput) -> None:
        if output.finish_reason is None:
            os.kill(pid, signal.SIGKILL)
            engine.core.executor._others._ranks[0].process.wait()
        inbox.put(output)

    engine.core.submit(PROMPTS[0], SamplingParams(max_tokens=20, min_tokens=20), listen)
    output = inbox.get(timeout=20)
    assert not output.error
    while output.finish_reason is None:
        output = inbox.get(timeout=20)
    assert f"rank 1 of 2 (process {pid}) was ended by SIGKILL" in output.error
    assert not engine.core.is_alive


def test_a_rank_that_ends_while_nothing_runs_is_noticed(start: Start) -> None:
    engine = start("llama")
    assert engine.core.is_alive
    os.kill(rank_of(engine), signal.SIGTERM)
    wait_until(lambda: not engine.core.is_alive)
    assert "was ended by SIGTERM" in engine.core.executor.failure


def test_ranks_do_not_outlive_a_first_rank_that_is_killed(tiny_model: Callable[[str], TinyModel]) -> None:
    command = [sys.executable, str(FIRST_RANK), str(tiny_model("llama").folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        pid = int(first.stdout.readline())
        assert is_running(pid)
        first.kill()
    wait_until(lambda: not is_running(pid))


def test_what_a_rank_cannot_load_is_told_at_load(tmp_path: Path, tiny_model: Any, monkeypatch: Any) -> None:
    """The checkpoint is whole for the first rank alone."""
    whole, damaged = tiny_model("llama").folder, tmp_path / "model"
    shutil.copytree(whole, damaged)
    with (damaged / "model.safetensors").open("r+b") as file:
        file.truncate(3000)
    monkeypatch.setattr(loading, "load_part", lambda setup: load_part(replace(setup, folder=str(whole))))
    with pytest.raises(RankError, match=r"rank 1 of 2 .*has failed: CheckpointError: .*model\.safetensors"):
        load_executor(damaged, RANKS, "cpu", "float32")


def test_a_rank_that_hangs_while_it_loads_is_named_and_ended(tiny_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def start_hanging(link: socket.socket) -> subprocess.Popen[bytes]:
        process = start_rank(link)
        os.kill(process.pid, signal.SIGSTOP)
        started.append(process)
        return process

    monkeypatch.setattr(processes, "start_rank", start_hanging)
    monkeypatch.setattr(processes, "_END_S", 0.5)
    monkeypatch.setattr(loading, "START_S", 0.5)
    with pytest.raises(RankError, match=r"^rank 1 of 2 \(process \d+\) hangs: it has said nothing for \d+ s after"):
        load_executor(tiny_model("llama").folder, RANKS, "cpu", "float32")
    [process] = started
    assert process.poll() == -signal.SIGKILL


@pytest.mark.parametrize(
    ("name", "options", "device", "words"),
    [
        ("llama", EngineOptions(ranks=3), "cpu", "cannot be divided among 3 ranks .* 4 attention heads"),
        ("llama", EngineOptions(ranks=2), "numpy", "tensor_parallel 2 needs PyTorch .* this model runs with numpy"),
        ("mamba", EngineOptions(ranks=2), "cpu", "this model runs through transformers' code"),
        ("llama", EngineOptions(ranks=2, is_batch_invariant=True), "cpu", "batch_invariant needs the kernels"),
    ],
)
def test_models_that_cannot_have_ranks_are_refused(
    name: str, options: EngineOptions, device: str, words: str, tiny_model: Any
) -> None:
    with pytest.raises(ExecutorError, match=words):
        load_executor(tiny_model(name).folder, options, device, "float32")


def test_more_ranks_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert rank_devices("cuda", 2) == ["cuda:0", "cuda:1"]
    with pytest.raises(ExecutorError, match=r"4 ranks .* need a GPU each, from cuda:0 on, and this machine has 2"):
        rank_devices("cuda", 4)
    with pytest.raises(ExecutorError, match="from cuda:1 on"):
        rank_devices("cuda:1", 2)


def test_ranks_share_gpus_where_nccl_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")
    assert rank_devices("cuda", 4) == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
    assert rank_devices("cuda:1", 2) == ["cuda:1", "cuda:1"]
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "0")
    with pytest.raises(ExecutorError, match="need a GPU each"):
        rank_devices("cuda", 4)


def test_a_build_without_gloo_is_told(monkeypatch: pytest.MonkeyPatch, tiny_model: Any) -> None:
    monkeypatch.setattr(group.dist, "is_gloo_available", lambda: False)
    with pytest.raises(ExecutorError, match=r"need torch\.distributed with gloo, and PyTorch .* was built without it"):
        load_executor(tiny_model("llama").folder, RANKS, "cpu", "float32")
