"""Triton's protobuf messages, taken from the `tritonclient` package without importing its client.

Importing `tritonclient.grpc` the ordinary way pulls in grpcio and 18 MB of memory that a server has no use for, so the
two generated modules are loaded through an empty parent package. Both stay importable for clients in this process. For
mypy the messages of configurations are those of the stub beside this file.
"""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any


def _load() -> tuple[Any, Any]:
    parent = "tritonclient.grpc"
    if parent in sys.modules:
        return importlib.import_module(f"{parent}.model_config_pb2"), importlib.import_module(f"{parent}.service_pb2")
    client = importlib.import_module("tritonclient")
    package = types.ModuleType(parent)
    package.__path__ = [str(Path(path) / "grpc") for path in client.__path__]
    sys.modules[parent] = package
    try:
        return importlib.import_module(f"{parent}.model_config_pb2"), importlib.import_module(f"{parent}.service_pb2")
    finally:
        del sys.modules[parent]


if TYPE_CHECKING:
    from trireme.proto import model_config_pb2 as model_config_pb2

    service_pb2: Any
else:
    model_config_pb2, service_pb2 = _load()
