"""What an engine is started with."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum
from numbers import Integral
from pathlib import Path


class WarmUpMode(Enum):
    """When steps are made ready that would otherwise be compiled or recorded amid traffic."""

    IDLE = "idle"
    """What almost every request needs before the first, the rest while nothing runs."""
    LOAD = "load"
    """All of it before the first request."""
    OFF = "off"


class SpeculationMode(Enum):
    """Where guesses of next tokens come from, several of which one step verifies."""

    OFF = "off"
    NGRAM = "ngram"
    """From what followed the last tokens earlier in prompt and answer."""
    DRAFT = "draft"
    """From a smaller model."""


class CacheType(Enum):
    """How keys and values are kept in the cache."""

    AUTO = "auto"
    """As the model's folder says; else in the numbers that the model computes in."""
    FP8 = "fp8"
    """As floats of eight bits (e4m3): half of the memory, and a little less exact."""


_AT_LEAST_ONE = (
    "max_sequences", "max_step_tokens", "max_length", "block_size", "ranks", "speculation_tokens", "max_adapters",
    "cache_tokens",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The limits of an engine; None leaves a limit to what the device has room for."""

    max_sequences: int = 256
    """How many sequences run at the same time."""
    max_waiting: int = 4096
    """How many sequences beyond those may wait for their turn; 0: as many as come."""
    max_step_tokens: int = 8192
    """How many tokens one step computes; longer prompts take several."""
    max_length: int | None = None
    """How many tokens a sequence may have; None: as many as the model takes."""
    block_size: int = 16
    """Tokens in a block of the cache."""
    cache_bytes: int | None = None
    """The size of the key/value cache; None: what the device has left, less a reserve."""
    cache_tokens: int | None = None
    """How many tokens' keys and values the cache keeps at most, where it has room for more; None: all it has room for.
    """
    cache_type: CacheType = CacheType.AUTO
    memory_share: float = 0.9
    """The part of a GPU's memory that weights, cache and steps of this engine may take together, whatever others take.
    """
    cache_share: float | None = None
    """The part of what a GPU has free beside the weights that the cache takes, in place of `memory_share`; None: as
    that says."""
    has_prefix_cache: bool = True
    step_timeout_s: float = 60.0
    """After so long a step is taken to hang: `Engine.generate` and `stream` raise then, and the worker of a served
    model is started anew. Who listens to `submit` has `EngineCore.stalled_s` to look at."""
    has_graphs: bool = True
    """Whether steps are recorded once and replayed, on devices that can."""
    is_batch_invariant: bool = False
    """Whether a sequence's tokens must not depend on what runs beside it, to the last bit; slower, on CUDA alone."""
    warm_up: WarmUpMode = WarmUpMode.IDLE
    ranks: int | None = None
    """Among how many processes the model is divided, each with a GPU of its own where there are GPUs; None: as the
    model's folder says, else one."""
    speculation: SpeculationMode = SpeculationMode.OFF
    speculation_tokens: int = 7
    """How many tokens are guessed at once, at most."""
    draft_model: Path | None = None
    """The folder of the smaller model."""
    draft_cache_bytes: int | None = None
    """The size of its key/value cache; None: a quarter of `cache_bytes`, or 1 GiB."""
    adapters: Path | Mapping[str, Path] | None = None
    """The folder whose sub-folders are adapters (LoRA) by their names, or those folders by name; None: there are none.
    """
    max_adapters: int = 8
    """How many adapters are kept in memory."""
    clock: Callable[[], float] = time.monotonic
    around_texts: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered in the thread that writes texts around all that is told of a step."""

    def __post_init__(self) -> None:
        """Raises ValueError with the name of a limit that nothing could run within; words stand for what they name."""
        least = {"max_waiting": 0, "draft_cache_bytes": 0, "cache_bytes": 0} | dict.fromkeys(_AT_LEAST_ONE, 1)
        for name, smallest in least.items():
            value = getattr(self, name)
            if value is not None and (not isinstance(value, Integral) or value < smallest):
                raise ValueError(f"{name} must be a whole number of at least {smallest}, found {value!r}")
        for name in ("memory_share", "cache_share"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int | float) or not 0 < value <= 1):
                raise ValueError(f"{name} must be above 0 and at most 1, found {value!r}")
        if not isinstance(self.step_timeout_s, int | float) or not self.step_timeout_s > 0:
            raise ValueError(f"step_timeout_s must be a number of seconds above 0, found {self.step_timeout_s!r}")
        kinds = (("cache_type", CacheType), ("warm_up", WarmUpMode), ("speculation", SpeculationMode))
        for name, kind in kinds:
            object.__setattr__(self, name, _member(name, getattr(self, name), kind))


def _member(name: str, value: object, kind: type[Enum]) -> Enum:
    try:
        return kind(value)
    except ValueError:
        words = ", ".join(str(member.value) for member in kind)
        raise ValueError(f"{name} must be one of {words}, found {value!r}") from None
