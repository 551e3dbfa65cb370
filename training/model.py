"""The shipped model in plain torch: a decoder of the llama architecture, under the names of its checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

ROPE_THETA = 10_000.0
NORM_EPS = 1e-5
IGNORED = -100
"""The target of tokens that are read and not learned to be written."""


@dataclass(frozen=True, slots=True)
class ModelSize:
    """How large the model is."""

    vocab: int = 4096
    hidden: int = 256
    layers: int = 8
    heads: int = 4
    kv_heads: int = 2
    mlp: int = 512
    context: int = 512

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads

    def config(self, dtype: str, bos_id: int, eos_ids: list[int]) -> dict[str, Any]:
        """What `config.json` says."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "intermediate_size": self.mlp,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_size,
            "max_position_embeddings": self.context,
            "hidden_act": "silu",
            "rms_norm_eps": NORM_EPS,
            "rope_theta": ROPE_THETA,
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": True,
            "initializer_range": 0.02,
            "bos_token_id": bos_id,
            "eos_token_id": eos_ids,
            "pad_token_id": bos_id,
            "torch_dtype": dtype,
        }


class Decoder(nn.Module):
    """Token ids in, logits out. The head is the embedding."""

    def __init__(self, size: ModelSize, dropout: float) -> None:
        super().__init__()
        self.size = size
        self.model = nn.ModuleDict(
            {
                "embed_tokens": nn.Embedding(size.vocab, size.hidden),
                "layers": nn.ModuleList(Layer(size, dropout) for _ in range(size.layers)),
                "norm": Norm(size.hidden),
            }
        )
        self.dropout = nn.Dropout(dropout)
        self._head_loss: Any = _head_loss
        frequencies = ROPE_THETA ** (-torch.arange(0, size.head_size, 2).float() / size.head_size)
        angles = torch.outer(torch.arange(size.context).float(), frequencies).repeat(1, 2)
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)
        self._initialise()

    def forward(self, ids: Tensor) -> Tensor:
        return functional.linear(self.model["norm"](self._hidden(ids)), self.model["embed_tokens"].weight)

    def loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        """The mean cross entropy over the targets that are not `IGNORED`."""
        return self._head_loss(self._hidden(ids), self.model["norm"], self.model["embed_tokens"].weight, targets)

    def compile_parts(self) -> None:
        """Compiles one layer, which serves for all of them, and the head: far sooner done than the model as a whole."""
        for layer in self.model["layers"]:
            layer.compile(dynamic=False)
        self._head_loss = torch.compile(_head_loss, dynamic=False)

    def _hidden(self, ids: Tensor) -> Tensor:
        count = ids.shape[1]
        hidden = self.dropout(self.model["embed_tokens"](ids))
        for layer in self.model["layers"]:
            hidden = layer(hidden, self.cosines[:count], self.sines[:count])
        return hidden

    def _initialise(self) -> None:
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                is_output = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * self.size.layers) ** 0.5 if is_output else 0.02)


class Layer(nn.Module):
    def __init__(self, size: ModelSize, dropout: float) -> None:
        super().__init__()
        self.input_layernorm = Norm(size.hidden)
        self.self_attn = Attention(size)
        self.post_attention_layernorm = Norm(size.hidden)
        self.mlp = Mlp(size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        hidden = hidden + self.dropout(self.self_attn(self.input_layernorm(hidden), cosines, sines))
        return hidden + self.dropout(self.mlp(self.post_attention_layernorm(hidden)))


class Attention(nn.Module):
    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.size = size
        self.q_proj = nn.Linear(size.hidden, size.heads * size.head_size, bias=False)
        self.k_proj = nn.Linear(size.hidden, size.kv_heads * size.head_size, bias=False)
        self.v_proj = nn.Linear(size.hidden, size.kv_heads * size.head_size, bias=False)
        self.o_proj = nn.Linear(size.heads * size.head_size, size.hidden, bias=False)

    def forward(self, hidden: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        batch, count, _ = hidden.shape
        queries = self._heads(self.q_proj(hidden), self.size.heads)
        keys = self._heads(self.k_proj(hidden), self.size.kv_heads)
        values = self._heads(self.v_proj(hidden), self.size.kv_heads)
        queries, keys = _rotated(queries, cosines, sines), _rotated(keys, cosines, sines)
        group = self.size.heads // self.size.kv_heads
        keys, values = keys.repeat_interleave(group, dim=1), values.repeat_interleave(group, dim=1)
        mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, count, -1))

    def _heads(self, projected: Tensor, count: int) -> Tensor:
        batch, length, _ = projected.shape
        return projected.view(batch, length, count, self.size.head_size).transpose(1, 2)


class Mlp(nn.Module):
    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(size.hidden, size.mlp, bias=False)
        self.up_proj = nn.Linear(size.hidden, size.mlp, bias=False)
        self.down_proj = nn.Linear(size.mlp, size.hidden, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(hidden)) * self.up_proj(hidden))


class Norm(nn.Module):
    """RMS norm, computed in float32."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, hidden: Tensor) -> Tensor:
        wide = hidden.float()
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + NORM_EPS)
        return self.weight * scaled.to(hidden.dtype)


def _head_loss(hidden: Tensor, norm: Norm, head: Tensor, targets: Tensor) -> Tensor:
    logits = functional.linear(norm(hidden), head)
    return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED)


def _rotated(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotary positions: an element turns together with the one half a head further on."""
    first, second = heads.float().chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return (heads.float() * cosines + turned * sines).to(heads.dtype)
