"""The format of recordings: what goes in comes out, a cut or damage costs no more than what it touches."""

from __future__ import annotations

import struct
import zlib
from io import BytesIO

import pytest

from trireme.core.recorded_call import RecordedCall, RecordedResponse
from trireme.core.tensor import Tensor
from trireme.protocol.recording.calls import BadCallError, decode_call, encode_begin, encode_call, encode_end
from trireme.protocol.recording.frames import MAGIC, MARK, Damage, Frame, NoRecordingError, encode_frame, read_frames


def tensor(name: str, datatype: str, shape: tuple[int, ...], data: bytes) -> Tensor:
    return Tensor(name, datatype, shape, data)


FULL = RecordedCall(
    at_ns=5,
    model="adder",
    version="2",
    served_version="2",
    protocol="grpc",
    request_id="r-1",
    inputs=(tensor("A", "FP32", (1, 2), b"12345678"), tensor("T", "BYTES", (1,), b"\1\0\0\0x")),
    outputs=("SUM",),
    class_counts={"SUM": 3},
    parameters={"flag": True, "n": 7, "share": 0.5, "word": "λ"},
    correlation_id="s-1",
    is_start=True,
    is_end=True,
    priority=2,
    timeout_us=1000,
    shared_memory=("A",),
    responses=(
        RecordedResponse(10, (tensor("SUM", "FP32", (1, 1), b"abcd"),), {"p": 1}),
        RecordedResponse(20, (), {}, "boom", "Internal"),
        RecordedResponse(30, is_empty=True),
    ),
    is_finished=False,
    is_cut=True,
    unplayable="",
)


def described(call: RecordedCall) -> object:
    """Tensors compare by identity, so what they hold is compared."""

    def tensors(found: object) -> list[tuple[object, ...]]:
        return [(t.name, t.datatype, tuple(t.shape), bytes(t.data)) for t in found]  # type: ignore[attr-defined]

    fields = {name: getattr(call, name) for name in RecordedCall.__slots__ if name not in ("inputs", "responses")}
    fields["outputs"] = list(call.outputs)
    fields["shared_memory"] = list(call.shared_memory)
    responses = [
        (r.after_ns, tensors(r.outputs), dict(r.parameters), r.error, r.error_kind, r.is_empty) for r in call.responses
    ]
    return fields, tensors(call.inputs), responses


def frames_of(content: bytes) -> list[Frame | Damage]:
    return list(read_frames(BytesIO(content)))


def only_call(content: bytes) -> RecordedCall:
    (frame,) = frames_of(MAGIC + content)
    assert isinstance(frame, Frame)
    return decode_call(frame)


@pytest.mark.parametrize(
    "call",
    [
        FULL,
        RecordedCall(at_ns=0, model="m"),
        RecordedCall(at_ns=1, model="m", correlation_id=2**64 - 1, has_answer=False, unplayable="too large"),
    ],
)
def test_a_call_comes_back_as_it_was(call: RecordedCall) -> None:
    assert described(only_call(encode_call(call))) == described(call)


def test_bytes_of_a_frame() -> None:
    text, data = b'{"kind":"x"}', b"abc"
    head = b"\xf5REC" + struct.pack("<IQI", len(text), len(data), zlib.crc32(text + data))
    assert encode_frame({"kind": "x"}, b"abc") == head + text + data
    assert MAGIC == b"TRIREME-RECORDING 1\n"


def test_a_file_cut_anywhere_is_read_up_to_the_cut() -> None:
    parts = [encode_begin({"id": "x"}), encode_call(FULL), encode_call(RecordedCall(1, "m")), encode_end({})]
    whole = MAGIC + b"".join(parts)
    ends = [len(MAGIC)]
    for part in parts:
        ends.append(ends[-1] + len(part))
    for cut in range(len(MAGIC), len(whole) + 1):
        found = frames_of(whole[:cut])
        count = sum(end <= cut for end in ends) - 1
        assert [type(entry) for entry in found[:count]] == [Frame] * count
        assert found[count:] == ([] if cut in ends else [Damage(ends[count], cut - ends[count], is_at_end=True)])


def test_damage_in_the_middle_costs_the_frame_it_touches() -> None:
    parts = [encode_frame({"number": number}, bytes([number]) * 100) for number in range(5)]
    whole = bytearray(MAGIC + b"".join(parts))
    place = len(MAGIC) + len(parts[0]) + len(parts[1])
    for offset in range(len(parts[2])):
        broken = bytearray(whole)
        broken[place + offset] ^= 0xFF
        found = frames_of(bytes(broken))
        numbers = [entry.header["number"] for entry in found if isinstance(entry, Frame)]
        assert numbers == [0, 1, 3, 4], offset
        assert Damage(place, len(parts[2]), is_at_end=False) in found


def test_lengths_that_promise_too_much_are_damage_and_take_no_memory() -> None:
    frame = b"\xf5REC" + struct.pack("<IQI", 2**32 - 1, 2**64 - 1, 0) + b"{}"
    found = frames_of(MAGIC + frame + encode_frame({"kind": "whole"}))
    assert [type(entry) for entry in found] == [Damage, Frame]


class CountingBytes(BytesIO):
    """Says how much was read of it."""

    read_bytes = 0

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self.read_bytes += len(found)
        return found


WHOLE = encode_frame({"kind": "x"}, b"1234")
SIZE = 200_000


def promise(data_bytes: int) -> bytes:
    """The beginning of a frame, with a checksum that is not right."""
    return b"\xf5REC" + struct.pack("<IQI", 2, max(0, data_bytes), 1) + b"{}"


def promises(between: bytes) -> bytes:
    """Each has the rest of the file for its data."""
    step = len(between) + len(promise(0))
    return b"".join(between + promise(SIZE - step * (number + 1)) for number in range(SIZE // step))


@pytest.mark.parametrize(
    ("content", "most_readings"),
    [
        (MARK * (SIZE // len(MARK)), 4),
        (promise(0) * (SIZE // len(promise(0))), 4),
        (promises(b""), 12),
        (promises(WHOLE), 120),  # blocks are searched from the end of each whole frame
        (WHOLE * (SIZE // len(WHOLE)), 2),
    ],
)
def test_files_full_of_marks_are_read_a_few_times(content: bytes, most_readings: int) -> None:
    source = CountingBytes(MAGIC + content + WHOLE)
    found = list(read_frames(source))
    last = found[-1]
    assert isinstance(last, Frame)
    assert last.header == {"kind": "x"}
    assert sum(isinstance(entry, Frame) for entry in found) == content.count(WHOLE) + 1
    assert source.read_bytes < most_readings * len(content)


def test_frames_whose_data_holds_marks_are_whole() -> None:
    inner = MAGIC + WHOLE + MARK * 50
    found = frames_of(MAGIC + encode_frame({"kind": "y"}, inner) + WHOLE)
    assert [(type(entry), entry.offset) for entry in found] == [(Frame, 20), (Frame, 20 + 32 + len(inner))]


def test_what_is_no_text_or_no_json_number_harms_nobody() -> None:
    raw = b"caf\xe9".decode("utf-8", "surrogateescape")
    call = RecordedCall(1, "m", request_id=raw, parameters={raw: raw, "far": float("inf"), "near": 1.5})
    found = only_call(encode_call(call))
    assert (found.request_id, found.parameters) == ("caf?", {"caf?": "caf?", "near": 1.5})


def test_a_call_too_large_to_describe_is_named() -> None:
    call = RecordedCall(1, "m", parameters={"p": "x" * (17 << 20)}, inputs=(tensor("A", "UINT8", (1,), b"1"),))
    found = only_call(encode_call(call))
    assert (found.at_ns, found.model, found.inputs) == (1, "m", ())
    assert found.unplayable.startswith("its description has 178")


@pytest.mark.parametrize("content", [b"", b"TRIREME", b"PK\3\4" * 20, b'{"kind":"call"}'])
def test_what_is_no_recording_is_told(content: bytes) -> None:
    with pytest.raises(NoRecordingError):
        frames_of(content)


@pytest.mark.parametrize(
    "header",
    [
        {"kind": "call"},
        {"kind": "call", "at_ns": "soon", "model": "m", "inputs": []},
        {"kind": "call", "at_ns": 1, "model": "m", "inputs": 3},
        {
            "kind": "call",
            "at_ns": 1,
            "model": "m",
            "inputs": [{"name": "A", "datatype": "FP32", "shape": [1], "size": 99}],
        },
        {
            "kind": "call",
            "at_ns": 1,
            "model": "m",
            "inputs": [{"name": "A", "datatype": "FP32", "shape": [1], "size": -4}],
        },
        {"kind": "call", "at_ns": 1, "model": "m", "inputs": [], "parameters": [1]},
    ],
)
def test_a_whole_frame_that_describes_no_call_is_refused(header: dict[str, object]) -> None:
    with pytest.raises(BadCallError, match="at byte 20"):
        only_call(encode_frame(header, b"1234"))


TENSOR = {"name": "A", "datatype": "UINT8", "shape": [4], "size": 4}
RIGHT: dict[str, object] = {"kind": "call", "at_ns": 1, "model": "m", "inputs": [TENSOR]}


@pytest.mark.parametrize("value", [{"a": 1}, [1], 1.5, True, None])
@pytest.mark.parametrize(
    "name",
    ["at_ns", "model", "version", "request_id", "correlation_id", "priority", "timeout_us", "unplayable", "protocol"],
)
def test_members_of_another_kind_make_no_call(name: str, value: object) -> None:
    with pytest.raises(BadCallError, match=f"'{name}' is no "):
        only_call(encode_frame(RIGHT | {name: value}, b"1234"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"outputs": "AB"},
        {"outputs": [1]},
        {"shared_memory": {"A": 1}},
        {"class_counts": ["A"]},
        {"class_counts": {"A": "3"}},
        {"parameters": [1]},
        {"parameters": {"p": [1]}},
        {"is_start": 1},
        {"is_finished": "no"},
        {"responses": 7},
        {"responses": [7]},
        {"responses": [{"after_ns": "soon"}]},
        {"responses": [{"after_ns": 1, "error": {}}]},
        {"inputs": [TENSOR | {"name": 7}]},
        {"inputs": [TENSOR | {"datatype": None}]},
        {"inputs": [TENSOR | {"shape": 4}]},
        {"inputs": [TENSOR | {"shape": ["4"]}]},
        {"inputs": [TENSOR | {"shape": [-4]}]},
        {"inputs": [TENSOR | {"size": "4"}]},
        {"at_ns": -1},
    ],
)
def test_lists_and_objects_of_another_kind_make_no_call(wrong: dict[str, object]) -> None:
    assert only_call(encode_frame(RIGHT, b"1234")).model == "m"
    with pytest.raises(BadCallError, match="describes no call"):
        only_call(encode_frame(RIGHT | wrong, b"1234"))


def test_another_protocol_is_an_unknown_one() -> None:
    assert only_call(encode_frame(RIGHT | {"protocol": "carrier pigeon"}, b"1234")).protocol == ""
    assert only_call(encode_frame(RIGHT | {"protocol": "grpc"}, b"1234")).protocol == "grpc"
