"""Recognises the Python models of TensorRT-LLM, which can only run where that is installed."""

from __future__ import annotations

import importlib.util
import logging
import re

from trireme.backends.python.host.worker_recipe import model_file_name
from trireme.backends.services import ModelSource
from trireme.machine.regular_files import read_regular

log = logging.getLogger(__name__)

_IMPORTS = re.compile(r"^\s*(import|from)\s+tensorrt_llm\b", re.MULTILINE)
_RUNS_ENGINES = re.compile(r"\bGenerationSession\b|\btensorrt_llm\.bindings\b|\bModelRunner(Cpp)?\b")
_MAX_SIZE = 2**20


def needs_engine_files(source: ModelSource) -> bool:
    """Whether the model's own file runs engines of TensorRT-LLM, takes token ids, and cannot be run here."""
    if importlib.util.find_spec("tensorrt_llm") is not None:
        return False
    if "input_ids" not in {entry.name for entry in source.config.input}:
        return False
    path = source.version_dir / model_file_name(source)
    try:
        if path.stat().st_size > _MAX_SIZE:
            return False
        text = read_regular(path).decode(errors="replace")
    except OSError:
        return False
    if not (_IMPORTS.search(text) and _RUNS_ENGINES.search(text)):
        return False
    log.info(
        "model '%s': its %s runs engine files with tensorrt_llm, which is not installed; its checkpoint is served "
        "by the engine of the backend 'tensorrtllm' instead",
        source.name,
        path.name,
    )
    return True
