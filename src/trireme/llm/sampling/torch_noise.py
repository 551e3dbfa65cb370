"""The noise of `noise.py` on a device: the same bits, in integers with a sign, since not every device has others."""

from __future__ import annotations

import numpy as np
import torch

from trireme.llm.sampling.noise import FIRST_FACTOR, SECOND_FACTOR, STEP


def signed(value: int) -> int:
    """The integer of 64 bits with a sign that has the same bits."""
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value


def token_steps(vocab_size: int, device: torch.device) -> torch.Tensor:
    """What each token id adds to the key of its row."""
    steps = (np.arange(vocab_size, dtype=np.uint64) + np.uint64(1)) * np.uint64(STEP)
    return torch.from_numpy(steps.view(np.int64)).to(device)


def gumbel(bits: torch.Tensor) -> torch.Tensor:
    """The noise for the sums of a row's key and a token's step."""
    mixed = _mix(bits)
    uniform = _shifted(mixed, 12).to(torch.float64).add_(0.5).mul_(2.0**-52)
    return uniform.log_().neg_().log_().neg_()


def _mix(bits: torch.Tensor) -> torch.Tensor:
    bits = (bits ^ _shifted(bits, 30)).mul_(signed(FIRST_FACTOR))
    bits = bits.bitwise_xor_(_shifted(bits, 27)).mul_(signed(SECOND_FACTOR))
    return bits.bitwise_xor_(_shifted(bits, 31))


def _shifted(bits: torch.Tensor, count: int) -> torch.Tensor:
    """To the right, with zeros from the left."""
    return (bits >> count).bitwise_and_(2 ** (64 - count) - 1)
