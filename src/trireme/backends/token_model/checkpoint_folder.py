"""Where a model's checkpoint lies: in the folder that its configuration names, or near the model's own."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.llm.models.checkpoint import CheckpointError, read_config

log = logging.getLogger(__name__)

_CONFIG_FILE = "config.json"
_TOKENIZER_FILE = "tokenizer.json"
_OF_ENGINES = ("builder_config", "pretrained_config")
"""What the config.json has that lies beside files for one GPU and one release of TensorRT."""


def find_checkpoint(named: str, model_dir: Path, version: str, ranks: int | None = None) -> Path:
    """The folder itself or one inside of it, first that for so many ranks; where it is not on this machine, what its
    path ends with is looked for in the repository, and at last the version's folder. Raises ModelLoadError with the
    places, or CheckpointError where what is there is damaged."""
    tried: list[Path] = []
    for folder in _candidates(named, model_dir.absolute(), version):
        if folder in tried or not folder.is_dir():
            continue
        tried.append(folder)
        for place in _places(folder, ranks):
            if is_checkpoint(place):
                if named and place != Path(named):
                    log.info("the checkpoint of '%s' is '%s'", named, place)
                return place
    for place in (place for folder in tried for place in _places(folder, ranks)):
        if (place / _CONFIG_FILE).is_file():
            read_config(place)
    places = ", ".join(f"'{folder}'" for folder in tried) or "no folder"
    raise ModelLoadError(
        f"there is no checkpoint for '{named}': looked in {places}; put a Hugging Face folder (config.json, "
        "*.safetensors) or a FasterTransformer checkpoint (config.ini, *.bin) there, or name its folder. Engine files "
        "of TensorRT are not read: the checkpoint that they were built from is"
    )


def tokenizer_sizes(folder: Path) -> frozenset[int]:
    """How many tokens the tokenizer of a checkpoint has, without those that were added to it and with them; nothing
    where it cannot be read."""
    try:
        file = json.loads((folder / _TOKENIZER_FILE).read_bytes())
        vocab, added = file["model"]["vocab"], file.get("added_tokens") or []
        known = set(vocab) if isinstance(vocab, dict) else {token for token, _ in vocab}
        return frozenset({len(known), len(known | {token["content"] for token in added})})
    except (OSError, ValueError, KeyError, TypeError):
        return frozenset()


def is_checkpoint(folder: Path) -> bool:
    """Whether it has the files of a model that can be read, and not those of an engine of TensorRT."""
    if (folder / "config.ini").is_file():
        return True
    try:
        config = read_config(folder)
    except CheckpointError:
        return False
    return not any(key in config for key in _OF_ENGINES)


def _places(folder: Path, ranks: int | None) -> Iterator[Path]:
    """The folder and those inside of it, first that for so many ranks."""
    yield folder
    inside = (entry for entry in folder.iterdir() if entry.is_dir())
    yield from sorted(inside, key=lambda entry: (entry.name != f"{ranks}-gpu", entry.name))


def _candidates(named: str, model_dir: Path, version: str) -> Iterator[Path]:
    if named:
        path = Path(named)
        yield path.absolute()
        yield model_dir / version / path
        yield model_dir / path
        parts = path.parts[1:] if path.is_absolute() else path.parts
        for start in range(len(parts)):
            yield model_dir.parent / Path(*parts[start:])
    yield model_dir / version
    yield model_dir
