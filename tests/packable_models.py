"""Tiny models whose matrices are wide enough for words of four bits, and the same with other numbers in them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from tiny_language_models import TinyModel, randomise

SIZES = {
    "vocab_size": 128,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
PROMPTS = [[5, 9, 17, 3, 40, 2], [100, 7, 7, 31], [64, 12, 90, 33, 21, 8, 77, 50, 4]]


def packable_llama(folder: Path, family: str = "Llama", **changes: Any) -> TinyModel:
    """A model on disk, in float32, and the same in transformers."""
    torch.manual_seed(3)
    config = getattr(transformers, f"{family}Config")(**{**SIZES, **changes})
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    randomise(model)
    model.generation_config = transformers.GenerationConfig()
    model.save_pretrained(folder)
    return TinyModel(folder, model)


def with_matrices(model: Any, change: Callable[[str, torch.Tensor], torch.Tensor | None]) -> Any:
    """A copy whose linear modules in layers have the numbers that come back, where any do."""
    changed = copy.deepcopy(model)
    with torch.no_grad():
        for name, module in changed.named_modules():
            if isinstance(module, torch.nn.Linear) and ".layers." in f".{name}":
                numbers = change(name, module.weight.detach().clone())
                if numbers is not None:
                    module.weight.copy_(numbers)
    return changed
