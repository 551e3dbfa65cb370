"""Which tokens begin and end texts, as a model's folder says it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trireme.llm.tokenizer.port import DOWNLOAD_AGAIN, TokenizerError

NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Read from `tokenizer_config.json`, `special_tokens_map.json` and `generation_config.json`."""

    names: Mapping[str, str]
    """Name to text: `bos_token`, `eos_token` and so on."""
    end_ids: tuple[int, ...] = ()
    """Tokens that end an answer, from `generation_config.json`."""
    adds_bos: bool = False
    """Whether the configuration asks for the first token before every text."""
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()

    def resolved(self, find: Callable[[str], int | None]) -> SpecialTokens:
        """With ids, once the vocabulary is known."""
        eos = find(self.names["eos_token"]) if "eos_token" in self.names else None
        own = () if eos is None else (eos,)
        bos = find(self.names["bos_token"]) if "bos_token" in self.names else None
        return replace(self, bos_id=bos, eos_ids=(*own, *(token for token in self.end_ids if token not in own)))


def read_special_tokens(folder: Path) -> SpecialTokens:
    """What the folder's files say; a file that is missing says nothing."""
    config = read_json(folder / "tokenizer_config.json")
    names = {}
    for source in (read_json(folder / "special_tokens_map.json"), config):
        for name in NAMES:
            text = _text(source.get(name))
            if text is not None:
                names[name] = text
    ends = read_json(folder / "generation_config.json").get("eos_token_id")
    end_ids = tuple(ends) if isinstance(ends, list) else (ends,) if isinstance(ends, int) else ()
    return SpecialTokens(names, end_ids, config.get("add_bos_token") is True)


def read_json(file: Path) -> dict[str, Any]:
    """An empty one where the file is missing; raises TokenizerError where it is damaged."""
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{file} is not JSON ({error}); {DOWNLOAD_AGAIN}") from None
    return content if isinstance(content, dict) else {}


def _text(value: object) -> str | None:
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else None
