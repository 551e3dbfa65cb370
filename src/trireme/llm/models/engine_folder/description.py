"""The file by which an engine folder is known, and which says what is in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from trireme.llm.models.checkpoint import CheckpointError, read_json

DESCRIPTION_FILE = "trireme_engine.json"
WEIGHTS_FILE = "engine.safetensors"
FORMAT_VERSION = 1
QUANTIZATIONS = ("none", "fp8", "int8", "int4", "awq", "gptq")
KV_CACHES = ("auto", "fp8")
_BUILD_AGAIN = "build the folder again with `trireme build`"


@dataclass(frozen=True, slots=True)
class EngineDescription:
    """What `trireme build` writes about a folder."""

    quantization: str
    """One of QUANTIZATIONS."""
    tensors: int
    """How many the weights' file has: fewer, and the folder is not whole."""
    weight_bytes: int
    source: str
    """The folder that it was built from, by the last two names of its path."""
    source_bytes: int
    """Of the source's weights."""
    bits: Mapping[str, int] = field(default_factory=dict)
    """How many matrices are stored in which form."""
    kv_cache: str = "auto"
    """How keys and values are kept where the model is served, one of KV_CACHES."""
    tensor_parallel: int = 1
    """Among how many processes the model is divided where it is served."""
    calibration: str = ""
    """The text that a method with calibration has seen."""
    perplexity: Mapping[str, Any] = field(default_factory=dict)
    """Of a text: `text`, `tokens`, `before` and `after`; empty where it was not measured."""
    built_by: str = ""
    format_version: int = FORMAT_VERSION


def is_engine_folder(folder: Path) -> bool:
    """Whether `trireme build` has written the folder."""
    return (folder / DESCRIPTION_FILE).is_file()


def read_description(folder: Path) -> EngineDescription:
    """What is in the folder; raises CheckpointError for another format or a file that says too little."""
    path = folder / DESCRIPTION_FILE
    found = read_json(path, _BUILD_AGAIN)
    version = found.get("format_version")
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"{path} is of format version {version}, and this release reads version {FORMAT_VERSION}; {_BUILD_AGAIN}"
        )
    if found.get("quantization") not in QUANTIZATIONS:
        raise CheckpointError(
            f"{path} names the quantization '{found.get('quantization')}', which is not known here; known are "
            f"{', '.join(QUANTIZATIONS)}"
        )
    if found.get("kv_cache", "auto") not in KV_CACHES:
        raise CheckpointError(
            f"{path} names the cache '{found['kv_cache']}', which is not known here; known are {', '.join(KV_CACHES)}"
        )
    ranks = found.get("tensor_parallel", 1)
    if not isinstance(ranks, int) or ranks < 1:
        raise CheckpointError(f"{path} has {ranks!r} as tensor_parallel: a whole number of at least 1 is meant")
    known = {one.name for one in fields(EngineDescription)}
    try:
        return EngineDescription(**{name: value for name, value in found.items() if name in known})
    except TypeError:
        missing = ", ".join(sorted(one for one in ("tensors", "weight_bytes", "source") if one not in found))
        raise CheckpointError(f"{path} does not say {missing or 'enough'}; {_BUILD_AGAIN}") from None


def write_description(folder: Path, description: EngineDescription) -> None:
    """The last file of a folder: without it there is no engine."""
    (folder / DESCRIPTION_FILE).write_text(json.dumps(asdict(description), indent=2) + "\n")
