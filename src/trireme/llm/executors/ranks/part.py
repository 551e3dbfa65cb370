"""A rank's part of a model: what it is set up with, its weights, and the decoder around them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from trireme.llm.executors.cache_dtype import cache_dtype
from trireme.llm.executors.limits import check_room, limits_for, weight_count
from trireme.llm.executors.port import ExecutorError
from trireme.llm.executors.ranks.decoder import RankDecoder
from trireme.llm.executors.ranks.division import Part, divide, spec_of
from trireme.llm.executors.ranks.group import RankGroup
from trireme.llm.executors.torch.cache import PagedCache
from trireme.llm.executors.torch.memory import cache_bytes, usable_bytes, what_is_usable
from trireme.llm.executors.torch.transfer import stream
from trireme.llm.executors.torch.weights import DecoderWeights, gather_weights, host_tensors
from trireme.llm.models.catalog import load_weights, read_spec
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.options import CacheType, EngineOptions
from trireme.llm.step_plan import SchedulerLimits


@dataclass(frozen=True, slots=True)
class RankSetup:
    """What a rank is started with."""

    folder: str
    rank: int
    count: int
    device: str
    dtype: str
    store_file: str
    """By which the ranks meet."""
    thread_count: int
    """On a processor; 0 leaves the number as it is."""
    max_sequences: int
    max_step_tokens: int
    max_length: int | None
    block_size: int
    cache_bytes: int | None
    cache_tokens: int | None
    cache_type: str
    memory_share: float
    cache_share: float | None
    step_timeout_s: float

    def options(self) -> EngineOptions:
        """As far as a rank needs them."""
        return EngineOptions(
            max_sequences=self.max_sequences,
            max_step_tokens=self.max_step_tokens,
            max_length=self.max_length,
            block_size=self.block_size,
            cache_bytes=self.cache_bytes,
            cache_tokens=self.cache_tokens,
            cache_type=CacheType(self.cache_type),
            memory_share=self.memory_share,
            cache_share=self.cache_share,
            step_timeout_s=self.step_timeout_s,
            ranks=self.count,
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> RankSetup:
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class ModelPart:
    """A rank's weights, on its device."""

    setup: RankSetup
    whole: DecoderSpec
    own: DecoderSpec
    weights: DecoderWeights
    limits: SchedulerLimits
    """What the rank has room for."""
    device: torch.device
    dtype: torch.dtype

    def join(self, block_count: int) -> RankDecoder:
        """Meets the other ranks; `block_count` is what all of them have room for."""
        part = Part(self.setup.rank, self.setup.count)
        with torch.inference_mode():
            kept_as = cache_dtype(self.setup.options(), self.dtype)
            cache = PagedCache(self.own, block_count, self.limits.block_size, self.device, self.dtype, kept_as)
            group = RankGroup(part, self.setup.store_file, self.device, self.setup.step_timeout_s)
            return RankDecoder(self.whole, self.own, self.weights, cache, group)


def load_part(setup: RankSetup) -> ModelPart:
    """Reads the rank's part of the checkpoint; raises ExecutorError or CheckpointError."""
    options, part, folder = setup.options(), Part(setup.rank, setup.count), Path(setup.folder)
    device, dtype = torch.device(setup.device), getattr(torch, setup.dtype)
    if setup.thread_count:
        torch.set_num_threads(setup.thread_count)
    whole = read_spec(folder)
    whole = replace(whole, max_positions=min(whole.max_positions, setup.max_length or whole.max_positions))
    own = spec_of(whole, part)
    if device.type == "cuda":
        what = what_is_usable(device, options, f"rank {setup.rank}")
        check_room(own, options, dtype.itemsize, setup.dtype, usable_bytes(device, options), what)
    tensors = divide(host_tensors(load_weights(folder, read_spec(folder)), dtype), whole, part)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        tensors = stream(tensors, device, weight_count(own) * dtype.itemsize)
    try:
        with torch.inference_mode():
            weights = gather_weights(own, tensors, device, dtype)
    except torch.OutOfMemoryError as error:
        raise ExecutorError(f"{device} has no memory left while rank {setup.rank} loads its part: {error}") from None
    room = cache_bytes(device, options) // (setup.count if device.type == "cpu" else 1)
    limits = limits_for(own, options, room, cache_dtype(options, dtype).itemsize)
    return ModelPart(setup, whole, own, weights, limits, device, dtype)
