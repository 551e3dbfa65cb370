"""What keys and values are kept as, in PyTorch's types."""

from __future__ import annotations

import torch

from trireme.llm.options import CacheType, EngineOptions


def cache_dtype(options: EngineOptions, dtype: torch.dtype) -> torch.dtype:
    """Where a model computes in `dtype`."""
    return torch.float8_e4m3fn if options.cache_type is CacheType.FP8 else dtype
