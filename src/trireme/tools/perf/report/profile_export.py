"""Every request as JSON: when it was sent, what it carried, when responses came and what they said."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from trireme import __version__
from trireme.core.datatype import BYTES, NUMPY_DTYPE
from trireme.tools.perf.data.batches import RequestContent
from trireme.tools.perf.data.tensors import InputTensor
from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.load.records import RequestDetail
from trireme.tools.perf.measure.window import Window
from trireme.tools.perf.options import LoadMode, PerfOptions
from trireme.tools.perf.preparation import PreparedLoad
from trireme.tools.perf.wire import answers

_NO_BOUNDS = [0, 2**64 - 1]


def write_profile(
    options: PerfOptions, experiments: Sequence[tuple[str, float, list[Window]]], prepared: PreparedLoad
) -> None:
    """Writes the file of --profile-export-file; raises PerfError."""
    offset_ns = time.time_ns() - time.monotonic_ns()
    is_periodic = options.mode is LoadMode.PERIODIC_CONCURRENCY
    document = {
        "experiments": [
            {
                "experiment": {"mode": mode, "value": int(level) if float(level).is_integer() else level},
                "requests": list(_requests(windows, prepared, offset_ns)),
                "window_boundaries": _NO_BOUNDS if is_periodic else _boundaries(windows, offset_ns),
            }
            for mode, level, windows in experiments
        ],
        "version": __version__,
        "service_kind": options.service_kind,
        "endpoint": options.endpoint,
    }
    path = Path(options.report.profile_file or "")
    try:
        path.write_bytes(orjson.dumps(document))
    except OSError as error:
        raise PerfError(f"failed to open file '{path}' for writing profile export: {error.strerror}") from None


def _boundaries(windows: Sequence[Window], offset_ns: int) -> list[int]:
    edges = {edge + offset_ns for window in windows for edge in window.bounds_ns}
    return sorted(edges)


def _requests(windows: Sequence[Window], prepared: PreparedLoad, offset_ns: int) -> Iterator[dict[str, Any]]:
    known: dict[int, dict[str, Any]] = {}
    for window in windows:
        for detail in window.records.details:
            inputs = known.get(detail.content)
            if inputs is None:
                inputs = known[detail.content] = _inputs(prepared.contents[detail.content])
            yield _request(detail, inputs, prepared, offset_ns)


def _request(detail: RequestDetail, inputs: dict[str, Any], prepared: PreparedLoad, offset_ns: int) -> dict[str, Any]:
    request: dict[str, Any] = {"timestamp": detail.start_ns + offset_ns}
    if detail.sequence_id:
        request["sequence_id"] = detail.sequence_id
    request["request_inputs"] = inputs
    request["response_timestamps"] = [stamp + offset_ns for stamp in detail.times]
    request["response_outputs"] = [_outputs(prepared, body) for body in detail.outputs]
    return request


def _inputs(content: RequestContent) -> dict[str, Any]:
    if content.inputs and content.payload is not None:  # a file, which is not repeated for every request
        return {one.name: "" for one in content.inputs}
    if content.payload is not None:
        return {"payload": content.payload.decode("utf-8", "replace")}
    return {one.name: _values(one.datatype, one.data) for one in content.inputs}


def _outputs(prepared: PreparedLoad, body: Any) -> dict[str, Any]:
    kind = prepared.recipe.kind
    if kind in (answers.EVENTS, answers.TEXT):
        return {"response": answers.response_text(kind, body)}
    if kind == answers.MESSAGES:
        return {"response": {"b64": base64.b64encode(body).decode()}}
    found = {name: _values(datatype, value) for name, (datatype, value) in answers.outputs_of(kind, body).items()}
    return found or dict.fromkeys(prepared.outputs, "")


def _values(datatype: str, value: Any) -> Any:
    """A single text as such, everything else as a list."""
    if not isinstance(value, (bytes, bytearray, memoryview)):
        return _writable(value)
    if datatype == BYTES:
        texts = InputTensor("", datatype, (), bytes(value)).elements()
        return texts[0] if len(texts) == 1 else texts
    if datatype not in NUMPY_DTYPE or len(value) % NUMPY_DTYPE[datatype].itemsize:
        return list(bytes(value))
    return _writable(np.frombuffer(value, NUMPY_DTYPE[datatype]).tolist())


def _writable(value: Any) -> Any:
    """As JSON can say it: numbers without an end, and those that are none, are texts."""
    if isinstance(value, list):
        return [_writable(one) for one in value]
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return value
