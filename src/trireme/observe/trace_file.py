"""Trace files in Triton's format: a JSON list with a record for every request, timestamp and tensor."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from trireme.core.datatype import BYTES
from trireme.core.tensor import Tensor
from trireme.core.trace import Trace

log = logging.getLogger(__name__)


class TraceFile:
    """Collects finished traces and writes them: all at the end, or every `log_frequency` of them to a file of its own,
    `<file>.<index>`. A file that cannot be written is told once in the log and costs nobody an answer."""

    def __init__(self, path: str, log_frequency: int = 0) -> None:
        self._path = path
        self.log_frequency = log_frequency
        self._kept: list[bytes] = []
        self._count = 0  # of traces among the kept records
        self._next_index = 0
        self._has_failed = False

    def add(self, trace: Trace) -> None:
        """Takes a finished trace with all its children; children come first, the youngest of them first."""
        for each in _from_leaves(trace):
            self._kept += map(orjson.dumps, records_of(each))
        self._count += 1
        if self.log_frequency and self._count >= self.log_frequency:
            self._write(f"{self._path}.{self._next_index}")
            self._next_index += 1

    def close(self) -> None:
        """Writes what is left. With numbered files that is the last of them."""
        if self._kept:
            self._write(f"{self._path}.{self._next_index}" if self.log_frequency else self._path)
            self._next_index += 1

    def _write(self, path: str) -> None:
        records, self._kept = self._kept, []
        self._count = 0
        try:
            Path(path).write_bytes(b"[" + b",".join(records) + b"]")
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                log.error("failed to write the trace file '%s': %s", path, error.strerror)


def records_of(trace: Trace) -> Iterator[dict[str, Any]]:
    """The records of one request, in the order of the doors it passed."""
    subject: dict[str, Any] = {"id": trace.id, "model_name": trace.model_name, "model_version": trace.model_version}
    if trace.request_id:
        subject["request_id"] = trace.request_id
    if trace.parent is not None:
        subject["parent_id"] = trace.parent.id
    yield subject
    for name, ns in trace.marks:
        yield {"id": trace.id, "timestamps": [{"name": name, "ns": ns}]}
    for activity, tensor in trace.tensors:
        yield {"id": trace.id, "activity": activity, "tensor": _described(tensor)}


def _from_leaves(trace: Trace) -> Iterator[Trace]:
    for child in reversed(trace.children):
        yield from _from_leaves(child)
    yield trace


def _described(tensor: Tensor) -> dict[str, str]:
    shape = ",".join(map(str, tensor.shape))
    return {"name": tensor.name, "data": _listed(tensor), "shape": shape, "dtype": tensor.datatype}


def _listed(tensor: Tensor) -> str:
    values = tensor.to_numpy().ravel()
    if tensor.datatype == BYTES:
        return ",".join(f'"{value.decode("utf-8", "replace")}"' for value in values.tolist())
    if values.dtype.kind == "f":
        return ",".join(f"{value:g}" for value in values.astype(np.float64).tolist())
    return ",".join(str(int(value)) for value in values.tolist())
