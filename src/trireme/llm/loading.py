"""Chooses and loads what computes a model's steps."""

from __future__ import annotations

from pathlib import Path

from trireme.llm.executors.numpy.executor import NumpyExecutor
from trireme.llm.executors.port import Executor
from trireme.llm.models.catalog import load_weights, read_spec
from trireme.llm.options import EngineOptions


def load_executor(folder: str | Path, options: EngineOptions, device: str = "auto", dtype: str = "auto") -> Executor:
    """The executor for a folder."""
    spec = read_spec(folder)
    return NumpyExecutor(spec, load_weights(folder, spec), options)
