"""How surprised a model is by a text, measured with the engine that serves it."""

from __future__ import annotations

import math
from pathlib import Path

from trireme.llm.options import EngineOptions, WarmUpMode
from trireme.llm.quantization.texts import TokenText
from trireme.llm.sampling_params import SamplingParams
from trireme.llm.text_engine import Engine

_AT_ONCE = 8


def perplexity(folder: Path, text: TokenText, device: str = "auto") -> float:
    """The exponential of the mean surprise by a token; raises what loading the folder raises."""
    longest = max(len(sequence) for sequence in text.sequences)
    options = EngineOptions(
        max_sequences=_AT_ONCE,
        max_step_tokens=max(longest, 512),
        cache_bytes=None if device.startswith("cuda") else _cache_bytes(folder, longest),
        has_graphs=False,
        warm_up=WarmUpMode.OFF,
    )
    total, count = 0.0, 0
    with Engine.load(folder, device=device, options=options) as engine:
        params = SamplingParams(max_tokens=1, prompt_logprobs=0)
        for first in range(0, len(text.sequences), _AT_ONCE):
            for answer in engine.generate(list(text.sequences[first : first + _AT_ONCE]), params):
                found = answer.prompt_logprobs or ()
                total += sum(one.logprob for one in found)
                count += len(found)
    return math.exp(-total / max(count, 1))


def _cache_bytes(folder: Path, longest: int) -> int:
    """For so many sequences of so many tokens, in 32 bits."""
    from trireme.llm.executors.limits import token_items
    from trireme.llm.models.catalog import read_spec

    return _AT_ONCE * (longest + 32) * token_items(read_spec(folder)) * 4
