"""A causal model of transformers, loaded from a folder, and what its forward takes."""

from __future__ import annotations

import importlib
import inspect
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trireme.llm.executors.port import ExecutorError
from trireme.llm.models.catalog import all_end_ids
from trireme.llm.models.checkpoint import read_config
from trireme.llm.models.fields import end_ids
from trireme.llm.models.spec import DecoderSpec

log = logging.getLogger(__name__)

UNLIMITED_POSITIONS = 32768
"""The longest sequence of a model that names no limit, unless the options do."""
_CACHES = ("past_key_values", "cache_params", "state")
"""What models call what they keep from token to token, as an argument and in their outputs."""
_LENGTHS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length", "seq_length")


@dataclass(frozen=True, slots=True)
class ModelCode:
    """A model that is ready to be called."""

    model: Any
    device: torch.device
    dtype: torch.dtype
    arguments: frozenset[str]
    """What its forward takes by name."""

    @property
    def config(self) -> Any:
        """Of the part that writes text."""
        return self.model.config.get_text_config()

    @property
    def cache_name(self) -> str:
        """What the model calls its cache; "": it has none."""
        return next((name for name in _CACHES if name in self.arguments), "")

    def call(self, tokens: torch.Tensor, rows: torch.Tensor, **inputs: Any) -> tuple[torch.Tensor, Any]:
        """The logits of some rows, `[rows, vocab]`, and all that came with them; it gets the inputs that it takes."""
        known = {name: value for name, value in inputs.items() if name in self.arguments}
        if "logits_to_keep" in self.arguments:
            outputs = self.model(input_ids=tokens.unsqueeze(0), logits_to_keep=rows, **known)
            return outputs.logits[0], outputs
        outputs = self.model(input_ids=tokens.unsqueeze(0), **known)
        return outputs.logits[0].index_select(0, rows), outputs

    def plain_logits(self, tokens: list[int], places: list[int] | None = None) -> torch.Tensor:
        """Of some positions of a text, or of all, without any cache; positions count from 0, as for `generate`."""
        ids = torch.tensor(tokens, device=self.device)
        positions = torch.arange(len(tokens), device=self.device)
        rows = positions if places is None else torch.tensor(places, dtype=torch.int64, device=self.device)
        return self.call(ids, rows, position_ids=positions.unsqueeze(0), use_cache=False)[0]


def load_model(folder: Path, device: torch.device, dtype: torch.dtype) -> ModelCode:
    """Reads the folder's weights into the model code that its config.json names; raises ExecutorError."""
    transformers: Any = importlib.import_module("transformers")
    transformers.utils.logging.disable_progress_bar()  # it would be torn into lines of the log
    version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
    options = {"dtype" if version >= (4, 56) else "torch_dtype": dtype, "local_files_only": True}
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, **options).eval().to(device)
    except (OSError, ValueError, ImportError, RuntimeError, KeyError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ExecutorError(f"transformers {transformers.__version__} cannot load {folder}: {reason}") from error
    model.requires_grad_(False)
    return ModelCode(model, device, dtype, frozenset(inspect.signature(model.forward).parameters))


def spec_of(code: ModelCode, folder: Path, max_length: int | None) -> DecoderSpec:
    """What the engine has to know of the model, as far as its configuration tells."""
    config = code.config
    heads = _whole(config, "num_attention_heads")
    hidden = _whole(config, "hidden_size")
    found = next((size for size in (_whole(config, name) for name in _LENGTHS) if size), 0)
    positions = min(found, max_length or found) if found else max_length or UNLIMITED_POSITIONS
    with torch.inference_mode():
        vocab_size = code.plain_logits([0]).shape[-1]
    return DecoderSpec(
        architecture=type(code.model).__name__,
        vocab_size=vocab_size,
        hidden_size=hidden,
        layer_count=_whole(config, "num_hidden_layers"),
        head_count=heads,
        kv_head_count=_whole(config, "num_key_value_heads") or heads,
        head_size=_whole(config, "head_dim") or (hidden // heads if heads else 0),
        mlp_size=_whole(config, "intermediate_size"),
        max_positions=positions,
        eos_ids=all_end_ids(folder, end_ids(read_config(folder))),
    )


def _whole(config: Any, name: str) -> int:
    try:
        value = getattr(config, name, None)
    except Exception:  # some configurations do not answer where layers differ
        return 0
    return value if isinstance(value, int) and value > 0 else 0
