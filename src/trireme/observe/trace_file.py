"""Trace files in Triton's format: a JSON list with a record for every request, timestamp and tensor."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from trireme.core.datatype import BYTES
from trireme.core.tensor import Tensor
from trireme.core.trace import Trace

log = logging.getLogger(__name__)


class TraceFile:
    """Where traces are written: one file, `<path>`, that grows, and numbered ones beside it, `<path>.<index>`. A file
    that cannot be written is told once in the log and costs nobody an answer."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._next_index = 0
        self._is_begun = False
        self._has_failed = False

    def write_numbered(self, records: Sequence[bytes]) -> None:
        """Into the next file of their own."""
        path = f"{self._path}.{self._next_index}"
        self._next_index += 1
        self._write(path, "wb", b"[" + b",".join(records) + b"]")

    def append(self, records: Sequence[bytes]) -> None:
        """Behind what stands in the one file, which is a whole list each time; what an earlier run left goes."""
        if self._is_begun:
            self._write(self._path, "r+b", b"," + b",".join(records) + b"]")
        else:
            self._is_begun = True
            self._write(self._path, "wb", b"[" + b",".join(records) + b"]")

    def _write(self, path: str, mode: str, content: bytes) -> None:
        try:
            with Path(path).open(mode) as file:
                if mode == "r+b":
                    file.seek(-1, os.SEEK_END)  # over the bracket that closed the list
                file.write(content)
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                log.error("failed to write the trace file '%s': %s", path, error.strerror)


class TraceLog:
    """The traces taken under one set of settings, until they are written: every `log_frequency` of them to a numbered
    file, or all together at the end."""

    def __init__(self, file: TraceFile, log_frequency: int = 0) -> None:
        self._file = file
        self._log_frequency = log_frequency
        self._kept: list[bytes] = []
        self._count = 0  # of traces among the kept records
        self._is_closed = False

    def add(self, trace: Trace, *, is_last: bool = False) -> None:
        """Takes a finished trace with all its children; children come first, the youngest of them first. The last of a
        limited number is written at once, with those before it, to a numbered file."""
        for each in _from_leaves(trace):
            self._kept += map(orjson.dumps, records_of(each))
        self._count += 1
        if is_last or (self._log_frequency and self._count >= self._log_frequency):
            self._file.write_numbered(self._take())
        elif self._is_closed:
            self.close()

    def close(self) -> None:
        """The settings are replaced: writes what is left, and traces that are finished later as they come."""
        self._is_closed = True
        if not self._kept:
            return
        if self._log_frequency:
            self._file.write_numbered(self._take())
        else:
            self._file.append(self._take())

    def _take(self) -> list[bytes]:
        records, self._kept = self._kept, []
        self._count = 0
        return records


def records_of(trace: Trace) -> Iterator[dict[str, Any]]:
    """The records of one request, in the order of the marks it reached."""
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
