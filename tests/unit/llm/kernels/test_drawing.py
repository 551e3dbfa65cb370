"""Tokens that kernels draw are those that the definition of the noise says, and sets of tokens are taken apart as they
are on the host: on a GPU, or on a processor in the Triton language's interpreter."""

from __future__ import annotations

import os

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
pytest.importorskip("triton")

from trireme.llm.grammar.token_bits import as_mask  # noqa: E402
from trireme.llm.kernels import drawing  # noqa: E402
from trireme.llm.sampling import noise  # noqa: E402

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ROWS = 5


@pytest.mark.parametrize("vocab", [1, 23, 2048, 5000])
@pytest.mark.parametrize("has_floors", [False, True])
def test_draws_are_those_of_the_definition(vocab: int, has_floors: bool) -> None:
    chance = np.random.default_rng(vocab)
    values = chance.normal(0, 3, (ROWS, vocab)).astype(np.float32)
    values[0], values[1, ::3] = np.round(values[0]), -np.inf
    temperatures = np.array([0.5, 1.0, 2.0, 1e-5, 0.3])
    floors = np.array([-1.0, 0.0, -100.0, -1e9, 2.0])
    scaled = values.astype(np.float64) / temperatures[:, None]
    floors = np.minimum(floors, scaled.max(-1))
    table = np.zeros((ROWS, 7), np.int64)
    keys = noise.row_keys([3, 2**63 + 5, 0, 7, 9], range(ROWS))
    table[:, 2], table.view(np.float64)[:, 4] = keys.view(np.int64), temperatures
    there = torch.from_numpy(table).to(DEVICE)
    limits = torch.from_numpy(floors).to(DEVICE).unsqueeze(1) if has_floors else None
    found = drawing.draw(torch.from_numpy(values).to(DEVICE), there[:, 2:3], there.view(torch.float64)[:, 4:5], limits)
    sums = scaled + np.stack([noise.gumbel(int(key), np.arange(vocab)) for key in keys])
    if has_floors:
        sums = np.where(scaled >= floors[:, None], sums, -np.inf)
    assert found.tolist() == sums.argmax(-1).tolist()


@pytest.mark.parametrize("vocab", [1, 23, 2048, 5000])
def test_a_mass_is_that_of_what_is_kept(vocab: int) -> None:
    chance = np.random.default_rng(vocab)
    values = chance.normal(0, 3, (ROWS, vocab)).astype(np.float32)
    table = chance.uniform(0.3, 2.0, (ROWS, 3))
    scaled = values.astype(np.float64) / table[:, :1]
    table[:, 1], table[:, 2] = scaled.max(-1), scaled.max(-1) - chance.uniform(0, 4, ROWS)
    there = torch.from_numpy(table).to(DEVICE)
    found = drawing.mass(torch.from_numpy(values).to(DEVICE), there[:, :1], there[:, 1:2], there[:, 2:])
    wanted = np.where(scaled >= table[:, 2:], np.exp(scaled - table[:, 1:2]), 0.0).sum(-1, keepdims=True)
    assert found.tolist() == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("vocab", [70, 5000])
@pytest.mark.parametrize("last", [float("nan"), -torch.inf])
def test_a_row_without_numbers_gives_a_token_that_exists(vocab: int, last: float) -> None:
    values = torch.full((2, vocab), float("nan"), device=DEVICE)
    values[1] = last
    keys, ones = (
        torch.zeros((2, 1), dtype=torch.int64, device=DEVICE),
        torch.ones((2, 1), dtype=torch.float64, device=DEVICE),
    )
    assert all(0 <= token < vocab for token in drawing.draw(values, keys, ones, None).tolist())


@pytest.mark.parametrize("vocab", [1, 8, 23, 3000])
def test_what_is_not_allowed_is_forbidden(vocab: int) -> None:
    chance = np.random.default_rng(vocab)
    sets = [np.packbits(chance.random(vocab) < 0.3, bitorder="little") for _ in range(2)]
    values = chance.normal(0, 1, (3, vocab)).astype(np.float32)
    there = torch.from_numpy(values.copy()).to(DEVICE)
    drawing.forbid(there, torch.tensor([2, 0], device=DEVICE), torch.from_numpy(np.stack(sets)).to(DEVICE))
    values[2, ~as_mask(sets[0], vocab)] = values[0, ~as_mask(sets[1], vocab)] = -np.inf
    assert np.array_equal(there.cpu().numpy(), values)


@pytest.mark.parametrize("vocab", [1, 2, 23, 2048, 5000])
@pytest.mark.parametrize("rounded", [False, True])
def test_a_share_of_probability_ends_where_sorted_logits_say(vocab: int, rounded: bool) -> None:
    chance = np.random.default_rng(vocab)
    values = chance.normal(0, 3, (ROWS, vocab)).astype(np.float32)
    if rounded:
        values = np.round(values)
    values[2, 1::2] = -np.inf
    table = np.stack([[0.5, 1.0, 2.0, 1e-5, 0.3], [0.9, 0.5, 0.999, 0.9, 1e-9]], 1)
    scaled = values.astype(np.float64) / table[:, :1]
    largest = scaled.max(-1, keepdims=True)
    there = torch.from_numpy(table).to(DEVICE)
    found = drawing.top_p_floor(
        torch.from_numpy(values).to(DEVICE), there[:, :1], torch.from_numpy(largest).to(DEVICE), there[:, 1:]
    )
    falling = -np.sort(-scaled, -1)
    sums = np.exp(falling - largest).cumsum(-1)
    places = (sums < table[:, 1:] * sums[:, -1:]).sum(-1)
    assert found[:, 0].tolist() == falling[np.arange(ROWS), places].tolist()
