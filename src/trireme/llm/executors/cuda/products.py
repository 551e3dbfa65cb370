"""A step's products: each with the norm before it and what stands behind it, by the kernel that fits its size."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from trireme.llm.executors.cuda.weights import DecoderWeights, Norm, Product
from trireme.llm.kernels import elementwise, matmul
from trireme.llm.kernels.activations import ACTIVATIONS, NONE
from trireme.llm.kernels.matmul import Tiling
from trireme.llm.kernels.packed import int4_fragments, unpacking
from trireme.llm.kernels.packed.int4_fragments import Int4Fragments
from trireme.llm.kernels.packed.packed_matrix import PackedMatrix
from trireme.llm.kernels.tilings import invariant_tiling_for, packed_tiling_for, tiling_for
from trireme.llm.models.spec import DecoderSpec

_INVARIANT_ROWS = 512
"""Rows of a product that are computed at once where every product is cut in one way."""


class Products:
    """Multiplies rows with matrices of 16 bits or fewer."""

    def __init__(
        self,
        spec: DecoderSpec,
        weights: DecoderWeights,
        device: torch.device,
        dtype: torch.dtype,
        is_batch_invariant: bool,
    ) -> None:
        self.activation = ACTIVATIONS[spec.activation]
        self._spec, self._device, self._dtype = spec, device, dtype
        self._is_batch_invariant = is_batch_invariant
        self._split_scratch = matmul.SplitScratch(device)
        self._unpacked = _room_for_unpacked(weights, device, dtype)

    def normed(self, x: torch.Tensor, norm: Norm) -> torch.Tensor:
        return elementwise.norm(
            x,
            norm.weight,
            norm.bias,
            self._spec.norm_eps,
            is_layer=self._spec.norm == "layer",
            offset=self._spec.norm_weight_offset,
        )

    def product(
        self,
        x: torch.Tensor,
        product: Product,
        *,
        norm: Norm | None = None,
        residual: torch.Tensor | None = None,
        is_up: bool = False,
        activation: int = NONE,
        activate_to: int | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """A matrix with what stands before and behind it; `is_up`: with the activation, gated or not.

        `out` and `activate_to` need not be followed: a result elsewhere is not activated.
        """
        m, k = x.shape
        is_gated = is_up and self._spec.is_gated
        n = product.weight.shape[0] // (2 if is_gated else 1)
        if is_up:
            activation = self.activation
        if activation and self._spec.is_gated and not is_up:  # joined with attention: whoever reads it applies the gate
            activation = NONE
        takes_fragments = isinstance(product.weight, Int4Fragments) and m <= int4_fragments.MAX_ROWS
        tiling = None if takes_fragments else self._tiling_for(m, n, k, is_gated, product.weight)
        norms_inside = norm is not None and norm.weight is None and self._norms_inside(m, tiling, takes_fragments)
        if norm is not None and not norms_inside:
            x = self.normed(x, norm)
        if tiling is None and not takes_fragments:
            return self._many_rows(x, product, residual, activation if is_up else NONE, is_gated)
        out = torch.empty((m, n), dtype=self._dtype, device=self._device) if out is None else out
        settings: dict[str, Any] = {
            "norm_eps": self._spec.norm_eps if norms_inside else None,
            "bias": product.bias,
            "activation": activation,
            "activate_to": activate_to,
            "is_gated": is_gated,
        }
        if takes_fragments:
            assert isinstance(product.weight, Int4Fragments)
            return int4_fragments.product(x, product.weight, out=out, residual=residual, **settings)
        assert not isinstance(product.weight, Int4Fragments)
        assert tiling is not None
        self._few_rows(x, product.weight, tiling, out, residual, settings)
        return out

    def _few_rows(
        self,
        x: torch.Tensor,
        weight: torch.Tensor | PackedMatrix,
        tiling: Tiling,
        out: torch.Tensor,
        residual: torch.Tensor | None,
        settings: dict[str, Any],
    ) -> None:
        scales = None
        if _is_fp8(weight) and x.shape[0] > 1 and self._device.type == "cuda":
            x, scales = unpacking.to_fp8(x)
        at_once = _INVARIANT_ROWS if self._is_batch_invariant else x.shape[0]
        for first in range(0, x.shape[0], at_once):
            rows = slice(first, first + at_once)
            own_residual = residual[rows] if residual is not None else None
            matmul.few_rows(
                x[rows], weight, tiling, out=out[rows], residual=own_residual, scratch=self._split_scratch,
                x_scales=scales[rows] if scales is not None else None, **settings,
            )  # fmt: skip

    def _norms_inside(self, m: int, tiling: Tiling | None, takes_fragments: bool) -> bool:
        """Whether a product so cut makes the norm before it."""
        if self._spec.norm != "rms":
            return False
        return m <= int4_fragments.NORMED_ROWS if takes_fragments else tiling is not None and tiling.block_m == 1

    def _tiling_for(
        self, m: int, n: int, k: int, is_gated: bool, weight: torch.Tensor | PackedMatrix | Int4Fragments
    ) -> Tiling | None:
        if isinstance(weight, Int4Fragments):
            return None
        if self._is_batch_invariant:
            return invariant_tiling_for(n, k, is_gated)
        if isinstance(weight, PackedMatrix):
            return packed_tiling_for(m, n, k, is_gated, weight.bits)
        if m > 1 and self._dtype.itemsize > 2:  # those cuts are for 16 bits
            return None
        return tiling_for(m, n, k, is_gated)

    def _many_rows(
        self, x: torch.Tensor, product: Product, residual: torch.Tensor | None, activation: int, is_gated: bool
    ) -> torch.Tensor:
        weight = product.weight
        if isinstance(weight, torch.Tensor):
            return self._library_product(x, weight, product.bias, residual, activation, is_gated)
        if isinstance(weight, Int4Fragments):
            assert self._unpacked is not None
            unpacked = int4_fragments.unpack(weight, self._unpacked)
            return self._library_product(x, unpacked, product.bias, residual, activation, is_gated)
        if _is_fp8(weight) and self._device.type == "cuda":
            return self._fp8_product(x, weight, product.bias, residual, activation, is_gated)
        assert self._unpacked is not None
        unpacked = unpacking.unpack(weight, self._unpacked)
        return self._library_product(x, unpacked, product.bias, residual, activation, is_gated)

    def _fp8_product(
        self,
        x: torch.Tensor,
        weight: PackedMatrix,
        bias: torch.Tensor | None,
        residual: torch.Tensor | None,
        activation: int,
        is_gated: bool,
    ) -> torch.Tensor:
        """With the rows in eight bits as well, each with a scale of its own."""
        codes, scales = unpacking.to_fp8(x)
        y = torch._scaled_mm(codes, weight.codes.t(), scales, weight.scales.t(), out_dtype=self._dtype)
        if bias is not None:
            y.add_(bias)
        if residual is not None:
            return y.add_(residual)
        return self._activated(y, activation, is_gated)

    def _activated(self, y: torch.Tensor, activation: int, is_gated: bool) -> torch.Tensor:
        if is_gated:
            return elementwise.gate(y, activation)
        if activation:
            elementwise.activate_rows(y, activation, y)
        return y

    def _library_product(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        residual: torch.Tensor | None,
        activation: int,
        is_gated: bool,
    ) -> torch.Tensor:
        if residual is not None:
            residual.addmm_(x, weight.t())  # in place: nobody reads it again
            return residual if bias is None else residual.add_(bias)
        return self._activated(functional.linear(x, weight, bias), activation, is_gated)


def _room_for_unpacked(weights: DecoderWeights, device: torch.device, dtype: torch.dtype) -> torch.Tensor | None:
    """Memory for the largest matrix that is unpacked for products of many rows."""
    sizes = [
        product.weight.numel()
        for product in weights.products()
        if not isinstance(product.weight, torch.Tensor) and _is_unpacked(product.weight)
    ]
    return torch.empty(max(sizes), dtype=dtype, device=device) if sizes else None


def _is_unpacked(weight: PackedMatrix | Int4Fragments) -> bool:
    """Whether products of many rows take its numbers in 16 bits."""
    return isinstance(weight, Int4Fragments) or weight.bits != "fp8" or weight.codes.device.type != "cuda"


def _is_fp8(weight: torch.Tensor | PackedMatrix) -> bool:
    return isinstance(weight, PackedMatrix) and weight.bits == "fp8"
