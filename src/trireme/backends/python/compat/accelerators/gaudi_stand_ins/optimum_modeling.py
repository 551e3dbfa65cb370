"""`optimum.habana.transformers.modeling_utils`: transformers accepts what models written for Gaudi say to it."""

from __future__ import annotations

import functools
import importlib
import inspect
from typing import Any

from trireme.backends.python.compat.huggingface import tokenizer_methods

GAUDI_OPTIONS = frozenset(
    {
        "attn_batch_split",
        "attn_softmax_bf16",
        "bucket_internal",
        "bucket_size",
        "cache_idx",
        "clear_hpu_graphs_cache",
        "flash_attention_causal_mask",
        "flash_attention_fast_softmax",
        "flash_attention_recompute",
        "hpu_graphs",
        "ignore_eos",
        "iteration_times",
        "kv_cache_fp8",
        "lazy_mode",
        "limit_hpu_graphs",
        "profiling_record_shapes",
        "profiling_steps",
        "profiling_warmup_steps",
        "reduce_recompile",
        "reuse_cache",
        "static_shapes",
        "token_idx",
        "trim_logits",
        "use_flash_attention",
        "valid_sequence_lengths",
    }
)
"""Arguments of `generate` that say how an HPU computes, never what."""
_MARK = "_trireme_hpu"

__all__ = ["adapt_transformers_to_gaudi"]


def adapt_transformers_to_gaudi() -> None:
    """Teaches `generate`, and gives tokenizers back the methods that Gaudi's files call; once."""
    mixin = importlib.import_module("transformers.generation.utils").GenerationMixin
    if not hasattr(mixin.generate, _MARK):
        mixin.generate = _tolerant(mixin.generate)
    tokenizer_methods.restore(importlib.import_module("transformers.tokenization_utils_base"))


def _tolerant(generate: Any) -> Any:
    @functools.wraps(generate)
    def generate_anywhere(self: Any, *args: Any, **options: Any) -> Any:
        kept = {name: value for name, value in options.items() if name not in GAUDI_OPTIONS}
        if "token_type_ids" not in inspect.signature(self.forward).parameters:
            kept.pop("token_type_ids", None)  # some tokenizers make them for every model
        return generate(self, *args, **kept)

    setattr(generate_anywhere, _MARK, True)
    return generate_anywhere
