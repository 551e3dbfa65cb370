"""The sampler of devices comes to what the one in numpy comes to, with every option, in one batch."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from trireme.llm.grammar.token_bits import TokenBits, as_mask
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.prefix_cache import BlockKeys
from trireme.llm.request import Sequence
from trireme.llm.sampling import noise, numpy_sampler, torch_noise, torch_sampler
from trireme.llm.sampling.torch_sampler import TorchSampler
from trireme.llm.sampling_params import SamplingParams

CPU = torch.device("cpu")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class PlainKernels:
    """What our kernels compute, in plain steps: those need a GPU."""

    def forbid(self, values: torch.Tensor, places: torch.Tensor, bits: torch.Tensor) -> None:
        raise AssertionError("no row here has a grammar")

    def draw(
        self, values: torch.Tensor, keys: torch.Tensor, temperatures: torch.Tensor, floors: torch.Tensor | None
    ) -> torch.Tensor:
        scaled = values.double() / temperatures
        sums = scaled + torch_noise.gumbel(keys + torch_noise.token_steps(values.shape[1], values.device))
        return sums.masked_fill(scaled < (-torch.inf if floors is None else floors), -torch.inf).argmax(-1)

    def mass(
        self, values: torch.Tensor, temperatures: torch.Tensor, largest: torch.Tensor, floors: torch.Tensor
    ) -> torch.Tensor:
        scaled = values.double() / temperatures
        return (scaled - largest).exp().masked_fill(scaled < floors, 0.0).sum(-1, keepdim=True)

    def top_p_floor(
        self, values: torch.Tensor, temperatures: torch.Tensor, largest: torch.Tensor, shares: torch.Tensor
    ) -> torch.Tensor:
        raise AssertionError("every row here has a top-k")


class LargestTopk(TorchFunctionMode):
    """How many numbers a call has taken out of rows."""

    count = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        if function is torch.Tensor.topk:
            self.count = max(self.count, found.values.numel())
        return found


class EvenTokens:
    """A grammar of even numbers, and its state."""

    def start(self) -> EvenTokens:
        return self

    def allowed(self, vocab_size: int) -> TokenBits:
        return np.packbits(np.arange(vocab_size) % 2 == 0, bitorder="little")


@pytest.fixture(
    params=[False, True] if DEVICE.type == "cuda" else [False], ids=lambda has: "kernels" if has else "torch"
)
def sampler(request: pytest.FixtureRequest) -> Callable[[int], TorchSampler]:
    """Makes one for a vocabulary of some size; with our kernels too where there is a GPU."""
    kernels = importlib.import_module("trireme.llm.kernels.drawing") if request.param else None
    return lambda vocab: TorchSampler(DecoderSpec("LlamaForCausalLM", vocab, 8, 1, 1, 1, 8, 8, 64), DEVICE, kernels)


def random_params(chance: random.Random, vocab: int) -> SamplingParams:
    """Each option with some chance."""
    options: dict[str, Any] = {
        "temperature": chance.choice([0.2, 0.7, 1.0, 1.7]),
        "top_k": chance.choice([1, 3, 17, vocab, 2 * vocab]),
        "top_p": chance.choice([0.05, 0.5, 0.9, 0.999]),
        "top_p_decay": chance.choice([0.3, 0.9]),
        "top_p_min": chance.choice([0.01, 0.4]),
        "top_p_reset_id": chance.randrange(vocab),
        "min_p": chance.choice([0.01, 0.3]),
        "repetition_penalty": chance.choice([0.8, 1.3]),
        "presence_penalty": chance.choice([-0.5, 0.7]),
        "frequency_penalty": chance.choice([-0.3, 1.1]),
        "logit_bias": {chance.randrange(vocab): chance.uniform(-5, 5) for _ in range(3)},
        "bad_words": ((chance.randrange(vocab),), (chance.randrange(vocab), 3)),
        "min_tokens": 4,
        "logprobs": chance.choice([0, 1, 5]),
        "grammar": EvenTokens(),
    }
    return SamplingParams(**{name: value for name, value in options.items() if chance.random() < 0.4})


def random_sequence(chance: random.Random, vocab: int, params: SamplingParams | None = None) -> Sequence:
    tokens = [chance.randrange(vocab) for _ in range(chance.randrange(2, 12))]
    prompt_size = chance.randrange(1, len(tokens) + 1)
    params = params or random_params(chance, vocab)
    return Sequence(
        1,
        tokens,
        prompt_size,
        params,
        lambda output: None,
        BlockKeys(4),
        100,
        seed=chance.getrandbits(63),
        end_ids=frozenset([chance.randrange(vocab)]),
        grammar=params.grammar.start() if params.grammar is not None else None,
    )


@pytest.mark.parametrize("vocab", [23, 1000])
@pytest.mark.parametrize("seed", range(6))
def test_all_options_mixed_in_one_batch(sampler: Callable[[int], TorchSampler], seed: int, vocab: int) -> None:
    chance = random.Random(seed)
    count = 60
    logits = np.random.default_rng(seed).normal(0, 3, (2 * count, vocab)).astype(np.float32)
    kept = logits.copy()
    rows = chance.sample(range(2 * count), count)
    sequences = [random_sequence(chance, vocab) for _ in rows]
    positions = [chance.randrange(500) for _ in rows]
    wanted = numpy_sampler.choose(logits[rows], sequences, positions)
    tokens, reports = sampler(vocab).choose(torch.from_numpy(logits).to(DEVICE), rows, sequences, positions)
    assert tokens.dtype == torch.int32
    assert tokens.tolist() == wanted.tokens
    told = reports.told()
    assert set(told) == {rows[index] for index in wanted.logprobs}
    for index, one in wanted.logprobs.items():
        found = told[rows[index]]
        assert (found.rank, [token for token, _ in found.top]) == (one.rank, [token for token, _ in one.top])
        assert found.logprob == pytest.approx(one.logprob, abs=1e-9)
        assert [value for _, value in found.top] == pytest.approx([value for _, value in one.top], abs=1e-9)
    assert np.array_equal(logits, kept)


@pytest.mark.parametrize("limits", [{}, {"top_p": 0.97}, {"top_k": 40, "top_p": 0.8}, {"min_p": 0.05}])
def test_many_draws_from_a_flat_row(sampler: Callable[[int], TorchSampler], limits: dict[str, Any]) -> None:
    """So many tokens stay that the first of them do not decide top-p."""
    vocab, draws = 2000, 200
    chance = random.Random(1)
    logits = np.random.default_rng(1).normal(0, 0.3, (1, vocab)).astype(np.float32)
    one = random_sequence(chance, vocab, SamplingParams(temperature=1.0, **limits))
    wanted = numpy_sampler.choose(np.repeat(logits, draws, 0), [one] * draws, range(draws))
    tokens, _ = sampler(vocab).choose(torch.from_numpy(logits).to(DEVICE), [0] * draws, [one] * draws, range(draws))
    assert tokens.tolist() == wanted.tokens
    assert len(set(wanted.tokens)) > 20


@pytest.mark.parametrize(
    "limits", [{"top_k": 2}, {"top_p": 0.3}, {"top_k": 5, "top_p": 0.5}, {"top_k": 3, "min_p": 0.9}]
)
def test_equal_logits_stay_or_go_together(sampler: Callable[[int], TorchSampler], limits: dict[str, Any]) -> None:
    logits = np.round(np.random.default_rng(2).normal(0, 1, (80, 30))).astype(np.float32)
    chance = random.Random(2)
    sequences = [random_sequence(chance, 30, SamplingParams(temperature=1.0, **limits)) for _ in logits]
    wanted = numpy_sampler.choose(logits, sequences, range(80))
    tokens, _ = sampler(30).choose(torch.from_numpy(logits).to(DEVICE), range(80), sequences, range(80))
    assert tokens.tolist() == wanted.tokens


def test_a_seed_gives_its_tokens_whatever_shares_the_batch(sampler: Callable[[int], TorchSampler]) -> None:
    vocab, count = 300, 40
    chance = random.Random(3)
    logits = torch.randn(count, vocab, generator=torch.Generator().manual_seed(3)).to(DEVICE)
    sequences = [random_sequence(chance, vocab) for _ in range(count)]
    positions = [len(one.tokens) for one in sequences]
    together, _ = sampler(vocab).choose(logits, range(count), sequences, positions)
    backwards, _ = sampler(vocab).choose(logits, range(count)[::-1], sequences[::-1], positions[::-1])
    alone = [
        int(sampler(vocab).choose(logits, [row], [sequences[row]], [positions[row]])[0][0]) for row in range(count)
    ]
    assert together.tolist() == backwards.tolist()[::-1] == alone


@pytest.mark.parametrize("has_kernels", [False, True])
def test_one_large_k_does_not_have_as_many_looked_at_in_all_rows(
    monkeypatch: pytest.MonkeyPatch, has_kernels: bool
) -> None:
    vocab, count = 1000, 40
    monkeypatch.setattr(torch_sampler, "_AT_ONCE", 2 * vocab)
    logits = np.random.default_rng(4).normal(0, 3, (count, vocab)).astype(np.float32)
    chance = random.Random(4)
    params = [
        SamplingParams(temperature=1.0, top_k=vocab - 1 if index == 7 else 9, top_p=0.9) for index in range(count)
    ]
    sequences = [random_sequence(chance, vocab, one) for one in params]
    spec = DecoderSpec("LlamaForCausalLM", vocab, 8, 1, 1, 1, 8, 8, 64)
    sampler = TorchSampler(spec, CPU, PlainKernels() if has_kernels else None)
    with LargestTopk() as seen:
        tokens, _ = sampler.choose(torch.from_numpy(logits), range(count), sequences, range(count))
    assert tokens.tolist() == numpy_sampler.choose(logits, sequences, range(count)).tokens
    assert vocab - 1 <= seen.count <= 2 * vocab


def test_noise_has_the_bits_of_its_definition() -> None:
    seeds, positions = [0, 5, 2**63 - 1], [0, 77, 4096]
    keys = noise.row_keys(seeds, positions)
    steps = torch_noise.token_steps(1000, CPU)
    for key, signed in zip(keys, torch.from_numpy(keys.view(np.int64)), strict=True):
        found = torch_noise.gumbel(signed + steps).numpy()
        assert np.allclose(found, noise.gumbel(int(key), np.arange(1000)), rtol=1e-14, atol=1e-14)


def test_logits_of_half_precision_are_computed_with_in_full(sampler: Callable[[int], TorchSampler]) -> None:
    logits = torch.randn(20, 500, generator=torch.Generator().manual_seed(4)).to(torch.bfloat16)
    chance = random.Random(4)
    sequences = [random_sequence(chance, 500) for _ in range(20)]
    tokens, _ = sampler(500).choose(logits.to(DEVICE), range(20), sequences, range(20))
    assert tokens.tolist() == numpy_sampler.choose(logits.float().numpy(), sequences, range(20)).tokens


@pytest.mark.skipif(DEVICE.type != "cuda", reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")
@pytest.mark.parametrize("limits", [{}, {"top_p": 0.9}, {"top_k": 40, "top_p": 0.8}, {"min_p": 0.05, "logprobs": 3}])
def test_nothing_waits_for_the_device(sampler: Callable[[int], TorchSampler], limits: dict[str, Any]) -> None:
    chance = random.Random(5)
    logits = torch.randn(30, 1000, device=DEVICE)
    sequences = [random_sequence(chance, 1000, SamplingParams(temperature=0.8, **limits)) for _ in range(30)]
    one = sampler(1000)
    one.choose(logits, range(30), sequences, range(30))
    torch.cuda.set_sync_debug_mode("error")
    try:
        one.choose(logits, range(30), sequences, range(30))
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("vocab", [1, 8, 23, 1000])
def test_sets_of_tokens_are_taken_apart_on_a_device_as_on_the_host(
    sampler: Callable[[int], TorchSampler], vocab: int
) -> None:
    chance = np.random.default_rng(vocab)
    sets = [np.packbits(chance.random(vocab) < 0.3, bitorder="little") for _ in range(5)]
    found = sampler(vocab)._left_out(torch.from_numpy(np.stack(sets)).to(DEVICE)).cpu().numpy()
    assert np.array_equal(found, [~as_mask(one, vocab) for one in sets])
