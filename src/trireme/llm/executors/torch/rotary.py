"""Rotary positions: the angles of a step's tokens, and the rotation of queries and keys by them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from trireme.llm.models.spec import RopeSpec


@dataclass(frozen=True, slots=True)
class Angles:
    """Of the tokens of a step: `[tokens, 1, rotary size / 2]` each, in float32."""

    cosines: torch.Tensor
    sines: torch.Tensor


class Rotation:
    """How a kind of layer rotates."""

    def __init__(self, spec: RopeSpec, device: torch.device) -> None:
        self._spec = spec
        frequencies = [spec.inverse_frequencies, spec.long_inverse_frequencies or spec.inverse_frequencies]
        self._frequencies = torch.tensor(frequencies, dtype=torch.float32, device=device)
        """For sequences that are not long, and for those that are."""

    def angles(self, positions: torch.Tensor, is_long: torch.Tensor) -> Angles:
        """The angles of tokens, each at its position in a sequence that is long (1) or not (0)."""
        frequencies = self._frequencies.index_select(0, is_long)
        angles = (positions.to(torch.float32).unsqueeze(1) * frequencies).unsqueeze(1)
        scale = self._spec.attention_scale
        if scale == 1.0:
            return Angles(angles.cos(), angles.sin())
        return Angles(angles.cos() * scale, angles.sin() * scale)

    def rotate(self, heads: torch.Tensor, angles: Angles) -> None:
        """Turns `[tokens, heads, head size]` in place."""
        half = self._spec.rotary_size // 2
        if self._spec.is_interleaved:
            first, second = heads[..., 0 : 2 * half : 2], heads[..., 1 : 2 * half : 2]
        else:
            first, second = heads[..., :half], heads[..., half : 2 * half]
        turned = (first * angles.cosines).addcmul_(second, angles.sines, value=-1)
        if heads.dtype == torch.float32:
            second.mul_(angles.cosines).addcmul_(first, angles.sines)
        else:
            second.copy_((second * angles.cosines).addcmul_(first, angles.sines))
        first.copy_(turned)
