"""The numbers of sampling are what their definition says, on every machine."""

from __future__ import annotations

import math

import numpy as np

from trireme.llm.sampling.noise import gumbel, row_key, row_keys, uniform

MASK = 2**64 - 1


def mix(x: int) -> int:
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def by_definition(seed: int, position: int, token: int) -> float:
    step = 0x9E3779B97F4A7C15
    row = mix((mix((seed + step) & MASK) + (position + 1) * step) & MASK)
    bits = mix((row + (token + 1) * step) & MASK)
    return ((bits >> 12) + 0.5) / 2**52


def test_numbers_follow_the_definition() -> None:
    for seed in (0, 1, 2**63 - 1):
        for position in (0, 7, 131071):
            found = uniform(row_key(seed, position), np.array([0, 1, 5000, 262143]))
            wanted = [by_definition(seed, position, token) for token in (0, 1, 5000, 262143)]
            assert found.tolist() == wanted


def test_numbers_do_not_change_from_one_version_to_the_next() -> None:
    assert row_key(42, 17) == 0x72788AC53F004925
    assert uniform(row_key(42, 17), np.arange(3)).tolist() == [
        0.3485240471566359,
        0.9501401405353359,
        0.7778042336733345,
    ]


def test_keys_of_a_batch_are_those_of_its_rows() -> None:
    assert row_keys([1, 2**63 - 1], [3, 4]).tolist() == [row_key(1, 3), row_key(2**63 - 1, 4)]


def test_numbers_are_spread_evenly_and_do_not_hang_together() -> None:
    rows = np.stack([uniform(row_key(7, position), np.arange(2000)) for position in range(50)])
    assert rows.min() > 0
    assert rows.max() < 1
    counts, _ = np.histogram(rows, bins=20, range=(0, 1))
    expected = rows.size / 20
    assert ((counts - expected) ** 2 / expected).sum() < 45  # chi-squared, 19 degrees of freedom, one in a thousand
    assert abs(np.corrcoef(rows[0], rows[1])[0, 1]) < 0.1
    assert abs(np.corrcoef(rows[:, 0], rows[:, 1])[0, 1]) < 0.5


def test_noise_has_the_mean_of_its_distribution() -> None:
    noise = gumbel(row_key(3, 0), np.arange(100_000))
    assert np.isfinite(noise).all()
    assert abs(noise.mean() - np.euler_gamma) < 0.02
    assert abs(noise.std() - math.pi / math.sqrt(6)) < 0.02
