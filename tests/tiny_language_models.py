"""Tiny language models of every known architecture with random weights, and what transformers computes with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

VOCAB = 128
POSITIONS = 64
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": POSITIONS,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
}
"""What most architectures call their sizes."""


def rope(kind: str, theta: float = 10000.0, **settings: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **settings}}


RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama with biases, tied": ("Llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "llama, wide heads": ("Llama", {"head_dim": 12, "num_key_value_heads": 4}),
    "llama, linear": ("Llama", rope("linear", factor=4.0)),
    "llama, dynamic": ("Llama", rope("dynamic", factor=4.0)),
    "llama 3": (
        "Llama",
        rope(
            "llama3",
            500.0,
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=32,
        ),
    ),
    "llama, yarn": ("Llama", rope("yarn", factor=4.0, original_max_position_embeddings=16)),
    "mistral": ("Mistral", {"sliding_window": 6}),
    "qwen 2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen 2 with windows": ("Qwen2", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}),
    "qwen 3": ("Qwen3", {"head_dim": 16, "attention_bias": True}),
}
"""By a name for people: the family, and what differs from the sizes above (None takes a size away)."""


@dataclass(frozen=True)
class TinyModel:
    """A model on disk, and the same in transformers."""

    folder: Path
    model: Any

    def continuation(self, prompt: Sequence[int], count: int) -> list[int]:
        """The most likely tokens behind a prompt, as transformers finds them."""
        ids = torch.tensor([list(prompt)])
        with torch.no_grad():
            found = self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=count,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
            )
        return found[0, len(prompt) :].tolist()  # type: ignore[no-any-return]

    def logits(self, tokens: Sequence[int]) -> Any:
        """Of every position, as an array."""
        with torch.no_grad():
            return self.model(torch.tensor([list(tokens)])).logits[0].float().numpy()


def build(name: str, folder: Path, save: Callable[[Any, Path], None] | None = None) -> TinyModel:
    """Makes the model of a recipe; every weight is random enough that a mix-up shows."""
    family, changes = RECIPES[name]
    settings = {key: value for key, value in {**SIZES, **changes}.items() if value is not None}
    config = getattr(transformers, f"{family}Config")(**settings)
    torch.manual_seed(sum(map(ord, name)))
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    randomise(model)
    model.generation_config = transformers.GenerationConfig()
    if save is None:
        model.save_pretrained(folder)
    else:
        save(model, folder)
    return TinyModel(folder, model)


def randomise(model: Any) -> None:
    """Matrices keep the size of what passes them; norms and biases are off their neutral values."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 1.2 * parameter.shape[-1] ** -0.5 if "emb" not in name else 1.0)
            elif name.endswith("bias"):
                parameter.normal_(0, 0.3)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.3)
        model.tie_weights()
