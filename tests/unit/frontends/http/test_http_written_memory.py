"""What answers take while they are written as JSON is no more than what is counted for them."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.frontends.http import answers
from trireme.frontends.http.endpoints.generation import encode_response
from trireme.protocol.http1.chunks import LAST_CHUNK, frame_pieces
from trireme.protocol.http1.sse import event_pieces
from trireme.protocol.v2.binary import InferEncoder
from trireme.server.long_work import json_memory_bytes

SIZE_BYTES = 2_000_000
FEWER_BYTES = 500_000
"""Of the kinds whose few objects at a time fit into what is counted for so little as well: a narrower bound."""
STRINGS_BYTES = 1_200_000
"""Of short strings, which are the most to follow. The slice that is written at a time takes ten million bytes beyond
them, so that what is counted leaves less for each of these than for each of 2,000,000: a narrower bound, too."""
REQUEST = cast(Any, SimpleNamespace(model_name="m", served_version="1", id=""))
HEAD = cast(Any, SimpleNamespace(connection_line=b"", is_bodiless=False))
LONG_FLOATS = -np.random.default_rng(1).random(FEWER_BYTES // 4)


def _string(text: bytes) -> bytes:
    return struct.pack("<I", len(text)) + text


DATA = {
    "BOOL": bytes(SIZE_BYTES),
    "INT8": b"\x80" * SIZE_BYTES,
    "UINT8": b"\xff" * SIZE_BYTES,
    "INT16": b"\x00\x80" * (SIZE_BYTES // 2),
    "INT32": b"\x00\x00\x00\x80" * (FEWER_BYTES // 4),
    "UINT64": b"\xff" * FEWER_BYTES,
    "FP32": (LONG_FLOATS * 1e-30).astype("<f4").tobytes(),
    "FP64": (LONG_FLOATS[: FEWER_BYTES // 8] * 1e-200).tobytes(),
    "BYTES": _string(b"x" * (FEWER_BYTES - 4)),
    "BYTES of control characters": _string(b"\x01" * (FEWER_BYTES - 4)),
    "BYTES of eight characters": _string(b"12345678") * (STRINGS_BYTES // 12),
}


def _infer(tensor: Tensor) -> bytes:
    document = cast(Any, SimpleNamespace(outputs={}, is_binary_by_default=False))
    body, _ = InferEncoder().encode(("m", "1"), "", [tensor], None, document)
    return answers.typed(HEAD, 200, body)


def _generate(tensor: Tensor) -> bytes:
    body, *_ = encode_response(REQUEST, InferenceResponse([tensor]))
    return b"".join((b"head", *frame_pieces((body,)), LAST_CHUNK))


def _generate_stream(tensor: Tensor) -> bytes:
    body, *_ = encode_response(REQUEST, InferenceResponse([tensor]))
    return b"".join((b"head", *frame_pieces(event_pieces(body)), LAST_CHUNK))


@pytest.mark.parametrize("write", [_infer, _generate, _generate_stream])
@pytest.mark.parametrize("kind", DATA)
def test_no_kind_takes_more_than_is_counted(kind: str, write: Callable[[Tensor], bytes]) -> None:
    data, datatype = DATA[kind], kind.split()[0]
    item_bytes = len(data) if kind == "BYTES" or "control" in kind else 12 if datatype == "BYTES" else 1
    tensor = Tensor("OUTPUT0", datatype, (len(data) // item_bytes,), data)
    tracemalloc.start()
    try:
        assert len(write(tensor)) > len(data) // 2
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(data) + peak_bytes <= json_memory_bytes([tensor])


@pytest.mark.parametrize("kind", ["BOOL", "INT8", "UINT8"])
def test_a_short_answer_takes_one_slice_beyond_what_is_counted(kind: str) -> None:
    """Which only as many as there are threads do at the same time."""
    data = DATA[kind][:300_000]
    tensor = Tensor("OUTPUT0", kind, (len(data),), data)
    tracemalloc.start()
    try:
        _infer(tensor)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(data) + peak_bytes <= json_memory_bytes([tensor]) + 10_000_000
