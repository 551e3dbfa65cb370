"""Writes the trained model as a Hugging Face folder, with a page that says what it was made of."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

from training.chat_format import BEGIN, SPECIAL_TOKENS, TURN_END
from training.model import ModelSize

BEGIN_ID = SPECIAL_TOKENS.index(BEGIN)
WORDNET_LICENCE = Path(__file__).parent / "texts/wordnet_licence.txt"
EOS_IDS = [SPECIAL_TOKENS.index(TURN_END), BEGIN_ID]


@dataclass(frozen=True, slots=True)
class Losses:
    """On what was held back, in nats per token."""

    text: float
    chat: float

    @property
    def score(self) -> float:
        return (self.text + self.chat) / 2


def save(out: Path, data: Path, state: dict[str, torch.Tensor], size: ModelSize, dtype: str, notes: str) -> int:
    """Writes the folder; returns how many bytes it has."""
    out.mkdir(parents=True, exist_ok=True)
    stored = {name: tensor.to(getattr(torch, dtype)).contiguous().cpu() for name, tensor in state.items()}
    part = out / "model.safetensors.part"
    save_file(stored, part, metadata={"format": "pt"})
    part.chmod(0o644)
    part.replace(out / "model.safetensors")
    _write_json(out / "config.json", size.config(dtype, BEGIN_ID, EOS_IDS))
    _write_json(out / "generation_config.json", _generation_config())
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(data / name, out / name)
    (out / "README.md").write_text(_page(data, size, dtype, notes))
    return sum(file.stat().st_size for file in out.iterdir() if file.is_file())


def _generation_config() -> dict[str, object]:
    return {
        "bos_token_id": BEGIN_ID,
        "eos_token_id": EOS_IDS,
        "pad_token_id": BEGIN_ID,
        "do_sample": True,
        "temperature": 0.7,
        "top_p": 0.9,
    }


def _write_json(file: Path, content: dict[str, object]) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n")


def _page(data: Path, size: ModelSize, dtype: str, notes: str) -> str:
    file = data / "sources.json"
    sources = json.loads(file.read_text()) if file.exists() else []
    rows = [f"| {row['name']} | {row['package']} | {row['licence']} | {row['bytes'] / 1e6:.2f} |" for row in sources]
    table = "\n".join(["| text | package | licence | MB |", "|---|---|---|---|", *rows])
    return f"""# scribe

A very small language model that ships with Trireme, so that there is something to talk to at once. It knows common
words, some capitals and authors, small sums and the sound of old books. It is often wrong; do not rely on it.

Llama architecture, {size.layers} layers, hidden size {size.hidden}, {size.heads} heads ({size.kv_heads} for keys and values), MLP {size.mlp},
{size.vocab} tokens, context {size.context}, stored in {dtype}. Trained from nothing by `training/` of the Trireme repository.

{notes}

## What it was trained on
{table}

Conversations were made by `training/questions.py` from these texts, from WordNet and from tables of facts.

## Licence
Apache 2.0, as Trireme. The definitions and example sentences come from WordNet, under this licence:

```
{WORDNET_LICENCE.read_text().strip()}
```
"""
