"""Tiny language models of every known architecture with random weights, and what transformers computes with them."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

VOCAB = 128
POSITIONS = 64
PROMPTS = [np.random.default_rng(length).integers(3, VOCAB, length).tolist() for length in (3, 9, 14, 22)]
TEXTS = Path(tempfile.gettempdir()) / f"trireme-tiny-texts-{os.getuid()}"
"""What the models wrote before."""
ANSWER_TOKENS = 10
"""As many as the executors are asked for behind each of the prompts."""
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
    "pad_token_id": 0,
}
"""What most architectures call their sizes."""


def rope(kind: str, theta: float = 10000.0, **settings: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **settings}}


MODEL_CLASSES = {"GPT2": "GPT2LMHeadModel", "Gemma3Text": "Gemma3ForCausalLM"}
ATTENTION = {"Gemma2": "eager"}
"""Where transformers' usual attention leaves something out: soft caps."""
WINDOW_KINDS = ["sliding_attention", "full_attention", "sliding_attention"]
GEMMA = {"head_dim": 12, "query_pre_attn_scalar": 10}
GEMMA_ROPE = {
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0},
    }
}
LONGROPE = rope("longrope", short_factor=[1.0, 1.1, 1.2, 1.3], long_factor=[4.0, 5.0, 6.0, 7.0])
FALCON = {"intermediate_size": None, "num_key_value_heads": None}
ONE_NORM = {"num_ln_in_parallel_attn": 1, "ffn_hidden_size": 40}
NO_NORM_WEIGHTS = {"layer_norm_elementwise_affine": False}
GPT2 = {"n_embd": 32, "n_head": 4, "n_layer": 3, "n_positions": POSITIONS, "vocab_size": VOCAB}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}

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
    "gemma": ("Gemma", {"head_dim": 12, "num_key_value_heads": 1}),
    "gemma 2": (
        "Gemma2",
        {**GEMMA, "sliding_window": 5, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
    ),
    "gemma 3": ("Gemma3Text", {**GEMMA, "sliding_window": 5, "layer_types": WINDOW_KINDS, **GEMMA_ROPE}),
    "phi": ("Phi", {"tie_word_embeddings": True}),
    "phi, normed queries": ("Phi", {"qk_layernorm": True, "partial_rotary_factor": 0.75}),
    "phi 3": ("Phi3", {"sliding_window": 6, "tie_word_embeddings": True}),
    "phi 3, long": ("Phi3", {"original_max_position_embeddings": 16, **LONGROPE}),
    "falcon rw": ("Falcon", {**FALCON, "alibi": True, "multi_query": False, "parallel_attn": False, "bias": True}),
    "falcon, alibi of twelve heads": (
        "Falcon",
        {**FALCON, "num_attention_heads": 12, "hidden_size": 48, "alibi": True},
    ),
    "falcon 7b": ("Falcon", {**FALCON, "tie_word_embeddings": False}),
    "falcon 40b": ("Falcon", {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon 11b": ("Falcon", {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2, **ONE_NORM}),
    "pythia": ("GPTNeoX", {"rotary_pct": 0.5, "use_parallel_residual": True}),
    "gpt-neox in sequence": ("GPTNeoX", {"use_parallel_residual": False, "attention_bias": False}),
    "persimmon": ("Persimmon", {}),
    "persimmon, plain queries": ("Persimmon", {"qk_layernorm": False, "tie_word_embeddings": True}),
    "opt": ("OPT", {"ffn_dim": 40}),
    "opt 350m": ("OPT", {"ffn_dim": 40, "word_embed_proj_dim": 16, "do_layer_norm_before": False}),
    "galactica": ("OPT", {"ffn_dim": 40, "enable_bias": False, "activation_function": "gelu", **NO_NORM_WEIGHTS}),
    "gpt-2": ("GPT2", GPT2),
    "gpt-2, untied": ("GPT2", {**GPT2, "n_inner": 40, "scale_attn_weights": False, "tie_word_embeddings": False}),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 7}),
    "qwen 2 moe": ("Qwen2Moe", {**EXPERTS, "shared_expert_intermediate_size": 20, "mlp_only_layers": [1]}),
    "qwen 3 moe": ("Qwen3Moe", {**EXPERTS, "norm_topk_prob": True, "decoder_sparse_step": 2, "head_dim": 12}),
}
"""By a name for people: the family, and what differs from the sizes above (None takes a size away)."""


SMALL = {"n_embd": 32, "n_head": 4, "n_layer": 3, "n_positions": POSITIONS, "vocab_size": VOCAB, "n_inner": 48}
LATENT = {"q_lora_rank": 12, "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6}
ROUTED = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_group": 1, "topk_group": 1}
MAMBA_LAYERS = {"attn_layer_period": 3, "attn_layer_offset": 1, "mamba_dt_rank": 4}
PHI_ROPE = rope(
    "longrope",
    short_factor=[1.0, 1.1, 1.2, 1.3],
    long_factor=[4.0, 5.0, 6.0, 7.0],
    short_mscale=1.1,
    long_mscale=1.3,
    original_max_position_embeddings=16,
)
OTHER_RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "stablelm": ("StableLm", {"use_qkv_bias": True, "qk_layernorm": True}),
    "starcoder 2": ("Starcoder2", {"sliding_window": 6}),
    "olmo 2": ("Olmo2", {}),
    "cohere": ("Cohere", {"use_qk_norm": True, "logit_scale": 0.25}),
    "cohere 2": ("Cohere2", {"sliding_window": 5, "layer_types": WINDOW_KINDS}),
    "granite": ("Granite", {"attention_multiplier": 0.2, "logits_scaling": 2.0, "residual_multiplier": 0.7}),
    "glm": ("Glm", {"head_dim": 8}),
    "santacoder": ("GPTBigCode", SMALL),
    "gpt-oss": (
        "GptOss",
        {"head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5},
    ),
    "deepseek 3": ("DeepseekV3", {**LATENT, **ROUTED, "num_key_value_heads": 4, "first_k_dense_replace": 1}),
    "phi moe, long": ("Phimoe", {"num_local_experts": 4, "num_experts_per_tok": 2, **PHI_ROPE}),
    "olmo, dynamic": ("Olmo", {**rope("dynamic", factor=4.0)}),
    "gpt-j": ("GPTJ", {**SMALL, "rotary_dim": 4}),
    "bloom": (
        "Bloom",
        {"hidden_size": 32, "n_layer": 3, "n_head": 4, "vocab_size": VOCAB, "tie_word_embeddings": False},
    ),
    "codegen": ("CodeGen", {**SMALL, "rotary_dim": 4}),
    "xglm": (
        "XGLM",
        {
            "vocab_size": VOCAB,
            "d_model": 32,
            "ffn_dim": 48,
            "num_layers": 3,
            "attention_heads": 4,
            "max_position_embeddings": POSITIONS,
        },
    ),
    "mamba": ("Mamba", {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 3, "state_size": 4}),
    "jamba": ("Jamba", {**MAMBA_LAYERS, "num_experts": 2, "num_experts_per_tok": 1}),
}
"""The same of architectures that the catalog does not have."""
OWN_SIZES = ("GPT2", "GPTBigCode", "GPTJ", "Bloom", "CodeGen", "XGLM", "Mamba")
"""Those that call their sizes otherwise."""


@dataclass(frozen=True)
class TinyModel:
    """A model on disk, and the same in transformers."""

    folder: Path
    model: Any

    @property
    def rotates_by_length(self) -> bool:
        """Whether a longer text rotates all its positions otherwise, beginnings included.

        Some versions of transformers forget the prompt where a cached text grows beyond that length.
        """
        config = self.model.config
        rotation = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
        return bool(rotation.get("rope_type") == "longrope")

    def continuation(self, prompt: Sequence[int], count: int) -> list[int]:
        """The most likely tokens behind a prompt, as transformers finds them.

        It takes ten times as long to find them one after the other as to see, with one look at the whole text, that
        they are the same as those that were found for these weights before, in whatever process.
        """
        place = self._place_of(prompt, count)
        known = json.loads(place.read_text()) if place.exists() else None
        if known is not None and not self.rotates_by_length and self.follows(prompt, known):
            return known  # type: ignore[no-any-return]
        found = self._written(prompt, count)
        place.parent.mkdir(exist_ok=True)
        aside = place.with_suffix(f".{os.getpid()}")
        aside.write_text(json.dumps(found))
        aside.rename(place)
        return found

    def follows(self, prompt: Sequence[int], tokens: Sequence[int]) -> bool:
        """Whether these are the most likely tokens behind a prompt."""
        likely = self.logits([*prompt, *tokens[:-1]])[len(prompt) - 1 :].argmax(-1)
        return likely.tolist() == list(tokens)  # type: ignore[no-any-return]

    def _place_of(self, prompt: Sequence[int], count: int) -> Path:
        """The file of what was found; its name follows from all that it depends on but the libraries, so that it is a
        guess."""
        key = hashlib.blake2b(f"{list(prompt)} {self.model.config.to_json_string()}".encode(), digest_size=16)
        for parameter in self.model.parameters():
            key.update(parameter.detach().float().numpy().tobytes())
        return TEXTS / f"{key.hexdigest()}-{count}.json"

    def _written(self, prompt: Sequence[int], count: int) -> list[int]:
        ids = torch.tensor([list(prompt)])
        with torch.no_grad():
            found = self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=count,
                use_cache=not self.rotates_by_length,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
            )
        return found[0, len(prompt) :].tolist()  # type: ignore[no-any-return]

    def beams(self, prompt: Sequence[int], count: int, beams: int) -> list[list[int]]:
        """So many continuations of a search with as many beams, as transformers finds them."""
        ids = torch.tensor([list(prompt)])
        with torch.no_grad():
            found = self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=count,
                num_beams=beams,
                num_return_sequences=beams,
                use_cache=not self.rotates_by_length,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
            )
        return found[:, len(prompt) :].tolist()  # type: ignore[no-any-return]

    def logits(self, tokens: Sequence[int]) -> Any:
        """Of every position, as an array."""
        with torch.no_grad():
            return self.model(torch.tensor([list(tokens)])).logits[0].float().numpy()


def build(name: str, folder: Path, save: Callable[[Any, Path], None] | None = None) -> TinyModel:
    """Makes the model of a recipe; every weight is random enough that a mix-up shows."""
    family, changes = (RECIPES | OTHER_RECIPES)[name]
    sizes = {} if family in OWN_SIZES else SIZES
    settings = {key: value for key, value in {**sizes, **changes}.items() if value is not None}
    if name in RECIPES:
        settings["attn_implementation"] = ATTENTION.get(family, "sdpa")
    config = getattr(transformers, f"{family}Config")(**settings)
    torch.manual_seed(sum(map(ord, name)))
    model = getattr(transformers, MODEL_CLASSES.get(family, f"{family}ForCausalLM"))(config).eval()
    randomise(model)
    model.generation_config = transformers.GenerationConfig()
    if save is None:
        model.save_pretrained(folder)
    else:
        save(model, folder)
    return TinyModel(folder, model)


def randomise(model: Any) -> None:
    """Matrices keep the size of what passes them; norms and biases are off their neutral values.

    Embeddings that are the head as well are small: a token would follow itself otherwise.
    """
    embedding_size = 0.1 if model.config.tie_word_embeddings else 1.0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                is_embedding = "emb" in name or "wte" in name
                parameter.normal_(0, embedding_size if is_embedding else 1.2 * parameter.shape[-1] ** -0.5)
            elif name.endswith("bias"):
                parameter.normal_(0, 0.03)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.3)
        model.tie_weights()
