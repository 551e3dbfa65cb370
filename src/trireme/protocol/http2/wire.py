"""HTTP/2 on the wire: numbers of frames, flags, settings and errors, and the small frames themselves."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEAD: Final = struct.Struct(">BHBBI")
"""Length (8 and 16 bits), type, flags, stream."""
FRAME_HEAD_BYTES: Final = 9

DATA: Final = 0x0
HEADERS: Final = 0x1
PRIORITY: Final = 0x2
RST_STREAM: Final = 0x3
SETTINGS: Final = 0x4
PUSH_PROMISE: Final = 0x5
PING: Final = 0x6
GOAWAY: Final = 0x7
WINDOW_UPDATE: Final = 0x8
CONTINUATION: Final = 0x9

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
HAS_PRIORITY: Final = 0x20

NO_ERROR: Final = 0x0
PROTOCOL_ERROR: Final = 0x1
INTERNAL_ERROR: Final = 0x2
FLOW_CONTROL_ERROR: Final = 0x3
STREAM_CLOSED: Final = 0x5
FRAME_SIZE_ERROR: Final = 0x6
REFUSED_STREAM: Final = 0x7
CANCEL: Final = 0x8
COMPRESSION_ERROR: Final = 0x9
ENHANCE_YOUR_CALM: Final = 0xB

SETTING_HEADER_TABLE_SIZE: Final = 0x1
SETTING_ENABLE_PUSH: Final = 0x2
SETTING_MAX_CONCURRENT_STREAMS: Final = 0x3
SETTING_INITIAL_WINDOW_SIZE: Final = 0x4
SETTING_MAX_FRAME_SIZE: Final = 0x5
SETTING_MAX_HEADER_LIST_SIZE: Final = 0x6

DEFAULT_WINDOW: Final = 65_535
DEFAULT_FRAME_SIZE: Final = 16_384
DEFAULT_HEADER_TABLE_SIZE: Final = 4_096
LARGEST_FRAME_SIZE: Final = 2**24 - 1
LARGEST_WINDOW: Final = 2**31 - 1
LARGEST_STREAM_ID: Final = 2**31 - 1

SETTINGS_ACK: Final = FRAME_HEAD.pack(0, 0, SETTINGS, ACK, 0)

_MAX_SETTINGS_BYTES: Final = 6 * 128  # there are some ten settings in all
_SETTING: Final = struct.Struct(">HI")
_TWO_WORDS: Final = struct.Struct(">II")
_WORD: Final = struct.Struct(">I")


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


def decode_settings(payload: bytes) -> dict[int, int]:
    """The settings of a SETTINGS payload, checked; of one that is repeated the last value counts."""
    if len(payload) % 6:
        raise ConnectionFault(FRAME_SIZE_ERROR, "a SETTINGS frame is not a multiple of six bytes")
    if len(payload) > _MAX_SETTINGS_BYTES:
        raise ConnectionFault(ENHANCE_YOUR_CALM, "a SETTINGS frame has too many entries")
    settings = {}
    for key, value in _SETTING.iter_unpack(payload):
        if key == SETTING_ENABLE_PUSH and value > 1:
            raise ConnectionFault(PROTOCOL_ERROR, "ENABLE_PUSH is neither 0 nor 1")
        if key == SETTING_INITIAL_WINDOW_SIZE and value > LARGEST_WINDOW:
            raise ConnectionFault(FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE is above 2^31-1")
        if key == SETTING_MAX_FRAME_SIZE and not DEFAULT_FRAME_SIZE <= value <= LARGEST_FRAME_SIZE:
            raise ConnectionFault(PROTOCOL_ERROR, "MAX_FRAME_SIZE is out of range")
        settings[key] = value
    return settings
