"""Trace files in Triton's format: a JSON list with a record for every request, timestamp and tensor."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from io import FileIO
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from trireme.core.datatype import BF16
from trireme.core.tensor import Tensor
from trireme.core.threads.pools import create_threads
from trireme.core.trace import Trace

log = logging.getLogger(__name__)

MAX_KEPT_BYTES: Final = 16 << 20
"""Of traces that wait for the end of their settings, before they are written ahead of it."""


INLINE_BYTES: Final = 256 << 10
"""Of traces that are written at once; more of them, and what comes while those are written, is left to a thread."""
MAX_WAITING_BYTES: Final = 64 << 20
"""Of traces that wait for that thread; what comes then is dropped."""
MAX_TOLD_BYTES: Final = 4 << 10
"""Of tensors that become text at once, which takes the thousandfold of a copy; more of them are left to the thread."""
_TRACES_AT_ONCE: Final = 1024
_VALUES_AT_ONCE: Final = 1 << 16

Entry = bytes | Trace
"""A trace as it is written, or one with so many values that the thread writes them."""


class TraceFile:
    """Where traces are written: one file, `<path>`, that grows, and numbered ones beside it, `<path>.<index>`. For the
    event loop's thread, which never waits for much. What cannot be written is dropped; the log says when that begins
    and ends, and nobody's answer suffers."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._next_index = 0
        self._is_begun = False
        self._dropped = 0
        self._thread = create_threads("traces", most=1)  # started where there is much
        self._waiting: deque[tuple[Future[None], int]] = deque()  # in their order, with their sizes
        self._waiting_bytes = 0
        self._late = 0  # traces that could not wait

    def write_numbered(self, traces: Sequence[Entry], size_bytes: int) -> None:
        """Into the next file of their own."""
        self._pass_on(self._write_numbered, traces, size_bytes)

    def append(self, traces: Sequence[Entry], size_bytes: int) -> None:
        """Behind what stands in the one file, which is a whole list each time; what an earlier run left goes."""
        self._pass_on(self._append, traces, size_bytes)

    def close(self) -> None:
        """Waits until all is written."""
        wait([future for future, _ in self._waiting])

    def _pass_on(self, write: Callable[[Sequence[bytes]], None], traces: Sequence[Entry], size_bytes: int) -> None:
        """Writes the traces, or has the thread do it: behind all that came before, in either case."""
        while self._waiting and self._waiting[0][0].done():
            self._waiting_bytes -= self._waiting.popleft()[1]
        if self._waiting and self._waiting_bytes + size_bytes > MAX_WAITING_BYTES:
            if not self._late:
                log.error("the disk is too slow for the trace file '%s': traces are dropped", self._path)
            self._late += len(traces)
            return
        late, self._late = self._late, 0
        if self._waiting or size_bytes > INLINE_BYTES or any(isinstance(trace, Trace) for trace in traces):
            self._waiting.append((self._thread.submit(self._write, write, traces, late), size_bytes))
            self._waiting_bytes += size_bytes
        else:
            self._write(write, traces, late)

    # --- by the thread, or while it has nothing to do

    def _write(self, write: Callable[[Sequence[bytes]], None], traces: Sequence[Entry], late: int) -> None:
        self._dropped += late
        try:
            write([_written(trace) if isinstance(trace, Trace) else trace for trace in traces])
        except Exception:  # nobody looks at what the thread's work comes to
            log.exception("failed to write the trace file '%s'", self._path)

    def _write_numbered(self, traces: Sequence[bytes]) -> None:
        path = Path(f"{self._path}.{self._next_index}")
        self._next_index += self._attempt(path, _write_list, traces)

    def _append(self, traces: Sequence[bytes]) -> None:
        path = Path(self._path)
        if self._is_begun and os.path.exists(path):
            self._attempt(path, _extend_list, traces)
        elif self._attempt(path, _write_list, traces):
            self._is_begun = True

    def _attempt(self, path: Path, write: Callable[[Path, Sequence[bytes]], None], traces: Sequence[bytes]) -> bool:
        try:
            write(path, traces)
        except OSError as error:
            if not self._dropped:
                log.error(
                    "failed to write the trace file '%s': %s; traces are dropped until it can be written",
                    path,
                    error.strerror,
                )
            self._dropped += len(traces)
            return False
        if self._dropped:
            log.warning("the trace file '%s' is written again; %d traces are missing", path, self._dropped)
            self._dropped = 0
        return True


def _write_list(path: Path, traces: Sequence[bytes]) -> None:
    """A new file, or none; one that was there before is never removed, and is empty where there is no room."""
    try:
        file = _opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        is_new = True
    except FileExistsError:
        file = _opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        is_new = False
    with file:
        try:
            _write_all(file, b"[", traces)
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink() if is_new else file.truncate(0)
            raise


def _extend_list(path: Path, traces: Sequence[bytes]) -> None:
    """Leaves the list as it was where there is no room for more; begins it in a file that somebody has emptied."""
    with _opened(path, os.O_RDWR) as file:
        is_empty = file.seek(0, os.SEEK_END) == 0
        end = 0 if is_empty else file.seek(-1, os.SEEK_END)  # of the bracket that closes it
        try:
            _write_all(file, b"[" if is_empty else b",", traces)
        except OSError:
            file.seek(end)
            if not is_empty:
                file.write(b"]")  # which takes no room: there was a byte
            file.truncate()
            raise


def _opened(path: Path, flags: int) -> FileIO:
    """Raises OSError also for a pipe without a reader, which would be waited for without end."""
    return FileIO(os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666), "r+" if flags & os.O_RDWR else "w")


def _write_all(file: FileIO, opening: bytes, traces: Sequence[bytes]) -> None:
    """To the end of the list; some traces at a time, so that other threads get to run."""
    for start in range(0, len(traces), _TRACES_AT_ONCE):
        closing = b"]" if start + _TRACES_AT_ONCE >= len(traces) else b""
        entries = b",".join(traces[start : start + _TRACES_AT_ONCE])
        left = memoryview(b"%b%b%b" % (opening, entries, closing))
        while left:
            written: int | None = file.write(left)
            if written is None:  # a pipe whose reader is behind
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            left = left[written:]
        opening = b","


class TraceLog:
    """The traces taken under one set of settings, until they are written: every `log_frequency` of them to a numbered
    file, or all to one file, at the end or when they are many bytes."""

    def __init__(self, file: TraceFile, log_frequency: int = 0) -> None:
        self._file = file
        self._log_frequency = log_frequency
        self._kept: list[Entry] = []
        self._kept_bytes = 0
        self._is_closed = False

    def add(self, trace: Trace, *, is_last: bool = False) -> None:
        """Takes a finished trace with all its children; children come first, the youngest of them first. The last of a
        limited number is written at once, with those before it, to a numbered file."""
        tensor_bytes = sum(len(tensor.data) for each in _from_leaves(trace) for _, tensor in each.tensors)
        if tensor_bytes <= MAX_TOLD_BYTES:
            written = _written(trace)
            self._kept.append(written)
            self._kept_bytes += len(written)
        else:
            _keep_values(trace)
            self._kept.append(trace)
            self._kept_bytes += tensor_bytes
        if is_last or (self._log_frequency and len(self._kept) >= self._log_frequency):
            self._file.write_numbered(*self._take())
        elif self._is_closed or self._kept_bytes > MAX_KEPT_BYTES:
            self._write()

    def close(self) -> None:
        """The settings are replaced: writes what is left, and traces that are finished later as they come."""
        self._is_closed = True
        self._write()

    def _write(self) -> None:
        if not self._kept:
            return
        if self._log_frequency:
            self._file.write_numbered(*self._take())
        else:
            self._file.append(*self._take())

    def _take(self) -> tuple[list[Entry], int]:
        """The kept traces and their size."""
        taken = self._kept, self._kept_bytes
        self._kept = []
        self._kept_bytes = 0
        return taken


def _written(trace: Trace) -> bytes:
    """The trace with all its children."""
    return b",".join([orjson.dumps(record) for each in _from_leaves(trace) for record in records_of(each)])


def _keep_values(trace: Trace) -> None:
    """Whoever owns the memory of a tensor, a client's region say, may use it again once the request is answered."""
    for each in _from_leaves(trace):
        each.tensors = [
            (activity, Tensor(tensor.name, tensor.datatype, tensor.shape, bytes(tensor.data)))
            for activity, tensor in each.tensors
        ]


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
    """Some values at a time: their texts one by one take many times the memory of the whole."""
    values = _values(tensor)
    starts = range(0, len(values), _VALUES_AT_ONCE)
    return ",".join(",".join(_texts(values[start : start + _VALUES_AT_ONCE])) for start in starts)


def _values(tensor: Tensor) -> NDArray[Any]:
    if tensor.datatype == BF16:  # the upper half of an FP32
        return (np.frombuffer(tensor.data, "<u2").astype("<u4") << 16).view("<f4").astype(np.float64)
    values = tensor.to_numpy().ravel()
    return values.astype(np.float64) if values.dtype.kind == "f" else values


def _texts(values: NDArray[Any]) -> Iterator[str]:
    if values.dtype.kind == "O":
        return (f'"{value.decode("utf-8", "replace")}"' for value in values.tolist())
    if values.dtype.kind == "f":
        return (f"{value:g}" for value in values.tolist())
    return (str(int(value)) for value in values.tolist())
