"""`multi_lora.json`: the adapters that requests may name, as Triton's vLLM backend has them beside `model.json`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.vllm.json_file import read_json_file
from trireme.huggingface.adapters import CONFIG_FILE

FILE_NAME = "multi_lora.json"
FLAG = "enable_lora"


def read_lora_file(arguments: Mapping[str, Any], model_dir: Path, version: str) -> dict[str, Path] | None:
    """The adapters' folders by name; None where the arguments do not enable any. Raises ModelLoadError."""
    if str(arguments.get(FLAG, False)).lower() != "true":
        return None
    version_dir = model_dir / version
    path = version_dir / FILE_NAME
    found = read_json_file(path, if_missing=f", which {FLAG} needs: {_CONTENT}")
    if not isinstance(found, dict) or not all(isinstance(folder, str) and folder for folder in found.values()):
        raise ModelLoadError(f"'{path}' must have {_CONTENT}")
    return {name: _folder(Path(named), version_dir, model_dir) for name, named in found.items()}


_CONTENT = 'the folder of each adapter by its name, as in {"french": "adapters/french"}'


def _folder(named: Path, *beside: Path) -> Path:
    """As seen from where the server was started, from the version's folder or from the model's: where its files are.
    One that is nowhere is told to who asks for it."""
    places = (named.absolute(), *(folder / named for folder in beside))
    return next((place for place in places if (place / CONFIG_FILE).is_file()), places[0])
