"""Loads a model on several ranks: a process for each but the first, all of which read their parts at the same time."""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

import torch

from trireme.llm.executors.limits import check_room, refuse_batch_invariance
from trireme.llm.executors.port import Executor, ExecutorError
from trireme.llm.executors.ranks.division import Part, check_divisible, spec_of
from trireme.llm.executors.ranks.executor import RanksExecutor
from trireme.llm.executors.ranks.group import check_library
from trireme.llm.executors.ranks.part import RankSetup, load_part
from trireme.llm.executors.ranks.processes import START_S, RankProcesses
from trireme.llm.executors.torch.devices import cuda_device
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.options import EngineOptions
from trireme.machine.host_memory import free_host_bytes

log = logging.getLogger(__name__)

_SHARING: Final = "NCCL_MULTI_RANK_GPU_ENABLE"
"""NCCL's own variable, from its release 2.30 on: 1 lets several ranks be on one GPU."""
_SLOWER: Final = 3.0
"""How many times as long as the first rank others may take to load their parts."""


def load_on_ranks(folder: Path, spec: DecoderSpec, options: EngineOptions, place: str, dtype: str) -> Executor:
    """An executor whose process is the first of `options.ranks` ranks; raises ExecutorError or CheckpointError."""
    count = options.ranks or 1
    refuse_batch_invariance(options, f"on {count} ranks")
    check_divisible(spec, count)
    devices = rank_devices(place, count)
    check_library(torch.device(devices[0]))
    if place == "cpu":
        _check_host_room(spec, options, count, dtype)
    log.info("%s runs on %d ranks (%s) with PyTorch, in %s", spec.architecture, count, ", ".join(devices), dtype)
    meeting = Path(tempfile.mkdtemp(prefix="trireme-ranks-"))
    setups = _setups(folder, options, devices, dtype, meeting / "store")
    try:
        return _start(setups)
    except BaseException:
        shutil.rmtree(meeting, ignore_errors=True)
        raise


def rank_devices(place: str, count: int) -> list[str]:
    """A device for each rank: the processor for all, or a GPU for each from the given one on.

    Where NCCL is told that ranks may share GPUs they take turns on those that are there.
    """
    if place == "cpu":
        return ["cpu"] * count
    if not place.startswith("cuda"):
        raise ExecutorError(f"ranks (tensor_parallel) run on NVIDIA's GPUs or on the CPU, not on '{place}'")
    first = cuda_device(place).index or 0
    there = torch.cuda.device_count()
    if os.environ.get(_SHARING) == "1":
        return [f"cuda:{first + number % (there - first)}" for number in range(count)]
    if first + count > there:
        raise ExecutorError(
            f"{count} ranks (tensor_parallel) need a GPU each, from cuda:{first} on, and this machine has {there}; "
            "lower tensor_parallel, or place the model's instance on a GPU with a smaller number"
        )
    return [f"cuda:{number}" for number in range(first, first + count)]


def _start(setups: list[RankSetup]) -> Executor:
    others = RankProcesses([setup.to_json() for setup in setups[1:]])
    try:
        begin_s = time.monotonic()
        part = load_part(setups[0])
        limit_s = START_S + _SLOWER * (time.monotonic() - begin_s)
        blocks = min(part.limits.block_count, *(int(line["blocks"]) for line in others.lines(limit_s)))
        for setup in setups[1:]:
            others.send_line(setup.rank, json.dumps({"blocks": blocks}))
        executor = RanksExecutor(part, others, blocks, [setup.device for setup in setups])
    except BaseException:
        others.close()
        raise
    return executor


def _setups(folder: Path, options: EngineOptions, devices: list[str], dtype: str, store_file: Path) -> list[RankSetup]:
    """On a processor the ranks share its threads, on a GPU that several of them are on its memory."""
    threads = max(1, torch.get_num_threads() // len(devices)) if devices[0] == "cpu" else 0
    sharing = 1 if devices[0] == "cpu" else devices.count(devices[0])
    return [
        RankSetup(
            folder=str(folder.absolute()),
            rank=rank,
            count=len(devices),
            device=device,
            dtype=dtype,
            store_file=str(store_file),
            thread_count=threads,
            max_sequences=options.max_sequences,
            max_step_tokens=options.max_step_tokens,
            max_length=options.max_length,
            block_size=options.block_size,
            cache_bytes=options.cache_bytes,
            cache_tokens=options.cache_tokens,
            cache_type=options.cache_type.value,
            memory_share=options.memory_share / sharing,
            cache_share=None if options.cache_share is None else options.cache_share / sharing,
            step_timeout_s=options.step_timeout_s,
        )
        for rank, device in enumerate(devices)
    ]


def _check_host_room(spec: DecoderSpec, options: EngineOptions, count: int, dtype: str) -> None:
    free = free_host_bytes()
    each = None if free is None else free // count
    what = f"each of {count} ranks has {{}} of the machine's free memory"
    check_room(spec_of(spec, Part(0, count)), options, getattr(torch, dtype).itemsize, dtype, each, what)
