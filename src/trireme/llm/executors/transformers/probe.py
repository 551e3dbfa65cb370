"""Compares an executor with the plain model on a few tokens, before it is trusted with requests."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from trireme.llm.executors.port import Executor, StepResult
from trireme.llm.options import EngineOptions
from trireme.llm.prefix_cache import BlockKeys
from trireme.llm.request import FinishReason, Sequence
from trireme.llm.sampling_params import SamplingParams
from trireme.llm.scheduler import Scheduler
from trireme.llm.step_plan import StepPlan

OPTIONS = EngineOptions(max_sequences=2, max_step_tokens=11, block_size=4, has_prefix_cache=False)
"""Two sequences, cut into pieces that share steps."""
BLOCKS = 24
_SIZES = (25, 17)
_WRITTEN = 4
_LARGEST = {torch.float32: 2e-3, torch.float64: 2e-3}
"""How far logarithms of probabilities may be apart in exact types."""
_LARGEST_ROUGH = 0.3
_ROUGH_SHARE = 0.85
"""In others so many of them have to be that close: what is all but equal may be decided in another way."""


@dataclass(frozen=True, slots=True)
class Probed:
    """A text that an executor has read and continued, and what it found its tokens' probabilities to be."""

    tokens: list[int]
    logprobs: list[float] = field(default_factory=list)
    """Of all tokens but the first."""


def probe_options(token_bytes: int, options: EngineOptions) -> EngineOptions:
    """What an executor is to be made with for a probe."""
    room = BLOCKS * OPTIONS.block_size * token_bytes
    return replace(OPTIONS, cache_bytes=room, memory_share=options.memory_share, cache_share=options.cache_share)


def run(executor: Executor, max_positions: int) -> list[Probed]:
    """Lets two texts be read in pieces and continued, side by side."""
    generator = torch.Generator().manual_seed(7)
    scheduler = Scheduler(executor.limits)
    probed = []
    sequences = []
    for number, size in enumerate(min(size, max_positions - _WRITTEN) for size in _SIZES):
        tokens = torch.randint(executor.spec.vocab_size, (size,), generator=generator).tolist()
        params = SamplingParams(prompt_logprobs=0, logprobs=0)
        keys = BlockKeys(executor.limits.block_size)
        sequences.append(Sequence(number, tokens, size, params, lambda output: None, keys, size + _WRITTEN))
        probed.append(Probed(tokens))
        scheduler.add(sequences[-1])
    while (plan := scheduler.schedule()) is not None:
        result = executor.collect(executor.submit(plan))
        _settle(scheduler, plan, result, probed)
    return probed


def _settle(scheduler: Scheduler, plan: StepPlan, result: StepResult, probed: list[Probed]) -> None:
    index = 0
    for number, chunk in enumerate(plan.chunks):
        sequence = chunk.sequence
        found = probed[sequence.sequence_id].logprobs
        found += [one.logprob for one in result.prompt_logprobs.get(number, ())]
        tokens = []
        if chunk.samples:
            tokens.append(int(result.tokens[index]))
            found.append(result.logprobs[index].logprob)
            index += 1
        scheduler.settle(chunk, tokens)
        if len(sequence.tokens) >= sequence.max_size:
            scheduler.finish(sequence, FinishReason.LENGTH)


def is_equal(probed: Probed, logits: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether the plain model's logits of the text say the same."""
    wanted = logits[:-1].double().log_softmax(-1)
    following = torch.tensor(probed.tokens[1:], device=logits.device).unsqueeze(1)
    apart = (wanted.gather(1, following).squeeze(1).cpu() - torch.tensor(probed.logprobs).double()).abs()
    if dtype in _LARGEST:
        return bool((apart < _LARGEST[dtype]).all())
    return bool((apart < _LARGEST_ROUGH).double().mean() >= _ROUGH_SHARE)
