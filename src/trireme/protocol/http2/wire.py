"""HTTP/2 on the wire: numbers of frames, flags, settings and errors, and the small frames themselves."""

from __future__ import annotations

import struct
from collections.abc import Iterable

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEAD = struct.Struct(">BHBBI")
"""Length (8 and 16 bits), type, flags, stream."""
FRAME_HEAD_BYTES = 9

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
HAS_PRIORITY = 0x20

NO_ERROR = 0x0
PROTOCOL_ERROR = 0x1
INTERNAL_ERROR = 0x2
FLOW_CONTROL_ERROR = 0x3
STREAM_CLOSED = 0x5
FRAME_SIZE_ERROR = 0x6
REFUSED_STREAM = 0x7
CANCEL = 0x8
COMPRESSION_ERROR = 0x9
ENHANCE_YOUR_CALM = 0xB

SETTING_HEADER_TABLE_SIZE = 0x1
SETTING_ENABLE_PUSH = 0x2
SETTING_MAX_CONCURRENT_STREAMS = 0x3
SETTING_INITIAL_WINDOW_SIZE = 0x4
SETTING_MAX_FRAME_SIZE = 0x5
SETTING_MAX_HEADER_LIST_SIZE = 0x6

DEFAULT_WINDOW = 65_535
DEFAULT_FRAME_SIZE = 16_384
DEFAULT_HEADER_TABLE_SIZE = 4_096
LARGEST_FRAME_SIZE = 2**24 - 1
LARGEST_WINDOW = LARGEST_STREAM_ID = 2**31 - 1

SETTINGS_ACK = FRAME_HEAD.pack(0, 0, SETTINGS, ACK, 0)

_SETTING = struct.Struct(">HI")
_TWO_WORDS = struct.Struct(">II")
_WORD = struct.Struct(">I")


class ConnectionFault(Exception):
    """The peer broke the protocol or a limit in a way that ends the connection with this error code."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    """A whole frame."""
    size = len(payload)
    return FRAME_HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, stream_id) + payload


def settings_frame(settings: Iterable[tuple[int, int]]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(key, value) for key, value in settings))


def window_update_frame(stream_id: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream_id, _WORD.pack(increment))


def rst_stream_frame(stream_id: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream_id, _WORD.pack(code))


def ping_frame(payload: bytes, is_ack: bool) -> bytes:
    return frame(PING, ACK if is_ack else 0, 0, payload)


def goaway_frame(last_stream_id: int, code: int, reason: bytes) -> bytes:
    return frame(GOAWAY, 0, 0, _TWO_WORDS.pack(last_stream_id, code) + reason)


def decode_settings(payload: bytes) -> list[tuple[int, int]]:
    """The settings of a SETTINGS payload, checked; unknown ones are left out."""
    if len(payload) % 6:
        raise ConnectionFault(FRAME_SIZE_ERROR, "a SETTINGS frame is not a multiple of six bytes")
    settings = []
    for key, value in _SETTING.iter_unpack(payload):
        if key == SETTING_ENABLE_PUSH and value > 1:
            raise ConnectionFault(PROTOCOL_ERROR, "ENABLE_PUSH is neither 0 nor 1")
        if key == SETTING_INITIAL_WINDOW_SIZE and value > LARGEST_WINDOW:
            raise ConnectionFault(FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE is above 2^31-1")
        if key == SETTING_MAX_FRAME_SIZE and not DEFAULT_FRAME_SIZE <= value <= LARGEST_FRAME_SIZE:
            raise ConnectionFault(PROTOCOL_ERROR, "MAX_FRAME_SIZE is out of range")
        settings.append((key, value))
    return settings
