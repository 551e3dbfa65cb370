"""A program that loads tokenizers, files or folders by names on the hub: prints what came of each, and how long."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from trireme.backends.python.compat import import_hook

import_hook.install()

import huggingface_hub  # noqa: E402

from trireme.backends.llm.hub_folder import hub_folder  # noqa: E402

outcomes: dict[str, Any] = {}


def tokenizer(source: str) -> int:
    return len(auto_class.from_pretrained(source))


def file(source: str) -> str:
    return huggingface_hub.hf_hub_download(source, "config.json")


def folder(source: str) -> str:
    return str(hub_folder(source, None, "parameter 'model'"))


def attempt(name: str, call: Callable[[str], Any]) -> None:
    began = time.monotonic()
    try:
        outcomes[name] = call(name)
    except Exception as error:
        outcomes[name] = f"{type(error).__name__}: {error}"
    outcomes[f"{name} took"] = time.monotonic() - began


if sys.argv[1] == "tokenizer":  # whose import takes longer than all that is measured here
    from transformers import AutoTokenizer as auto_class
for source in sys.argv[2:]:
    attempt(source, {"tokenizer": tokenizer, "file": file, "folder": folder}[sys.argv[1]])
print(json.dumps(outcomes))
