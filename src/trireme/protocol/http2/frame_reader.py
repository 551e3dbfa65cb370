"""Cuts received bytes into frames without copying DATA, and joins header blocks that span frames."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from trireme.core.clock import Clock
from trireme.protocol.http2.wire import (
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FRAME_HEAD,
    FRAME_HEAD_BYTES,
    FRAME_SIZE_ERROR,
    HAS_PRIORITY,
    HEADERS,
    LARGEST_STREAM_ID,
    PADDED,
    PREFACE,
    PROTOCOL_ERROR,
    SETTINGS,
    ConnectionFault,
)

FRAMES_PER_TURN: Final = 256
"""Frames other than DATA that are read before others have their turn."""
_TURN_NS: Final = 20_000_000
"""How long the frames of one connection may keep the event loop before others have their turn."""
_WORK_PER_LOOK: Final = 16
"""After as many frames, or 64 bytes of those that are not DATA, one looks at the clock."""
_SETTINGS_COST: Final = 32  # of those, since it may set every call that waits going again
_NOT_WHOLE_MASK: Final = END_HEADERS | PADDED | HAS_PRIORITY


class FrameReader(ABC):
    """The part of a connection that knows where frames begin and end.

    DATA is passed on as far as it is there; every other frame, and the rare padded DATA, once it is complete.
    """

    __slots__ = (
        "_clock",
        "_data_flags",
        "_data_left",
        "_data_stream_id",
        "_is_preface_done",
        "_max_frame",
        "_needed",
        "_partial",
        "_turn_end_ns",
        "begun_count",
        "has_backlog",
        "is_closed",
    )

    def __init__(self, max_frame_bytes: int, clock: Clock) -> None:
        self._clock = clock
        self.is_closed = False
        self.has_backlog = False
        """There are more frames than may be read in one go: `receive(b"")` reads on."""
        self.begun_count = 0
        """Frames other than DATA that did not arrive in one piece."""
        self._max_frame = max_frame_bytes
        self._is_preface_done = False
        self._partial = bytearray()
        self._needed = len(PREFACE)
        self._data_left = 0  # bytes of a DATA frame that are still to come
        self._data_stream_id = 0
        self._data_flags = 0
        self._turn_end_ns = 0  # of the one that goes on, once somebody has looked at the clock

    @property
    def is_mid_frame(self) -> bool:
        """Whether the preface or a frame other than DATA has begun and not ended, or is still to come."""
        return bool(self._partial) or not self._is_preface_done

    @abstractmethod
    def _begin_data(self, flags: int, stream_id: int, data: bytes, start: int, stop: int, charged_bytes: int) -> None:
        """The first, mostly only, part of a DATA frame: `data[start:stop]` of a frame that costs `charged_bytes`."""

    @abstractmethod
    def _continue_data(self, stream_id: int, data: bytes, stop: int, is_end: bool) -> None:
        """Another part of the DATA frame that began before: `data[:stop]`."""

    @abstractmethod
    def _whole_block(self, stream_id: int, block: bytes, is_end: bool) -> None:
        """A HEADERS frame that is its whole block and nothing else."""

    @abstractmethod
    def _frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """Any other frame."""

    def _consume(self, data: bytes) -> None:
        goes_on = bool(self._partial)
        if goes_on or not self._is_preface_done:
            self._partial += data
            if len(self._partial) < self._needed and self._is_preface_done:
                return
            data = bytes(self._partial)
            self._partial.clear()
        position = 0
        if not self._is_preface_done:
            position = self._take_preface(data)
            if not position:
                self._partial += data
                return
        if self._data_left:
            position = self._take_more_data(data)
        end = len(data)
        stop = 0
        frames_left, work_left = FRAMES_PER_TURN, _WORK_PER_LOOK
        self._turn_end_ns = 0
        self.has_backlog = False
        while end - position >= FRAME_HEAD_BYTES and not self.is_closed:
            if work_left <= 0:
                if self._is_turn_over():
                    self._keep_for_later(data, position)
                    return
                work_left = _WORK_PER_LOOK
            high, low, kind, flags, stream_id = FRAME_HEAD.unpack_from(data, position)
            size = high << 16 | low
            if size > self._max_frame:
                raise ConnectionFault(FRAME_SIZE_ERROR, "a frame is larger than MAX_FRAME_SIZE")
            stream_id &= LARGEST_STREAM_ID
            start = position + FRAME_HEAD_BYTES
            stop = start + size
            work_left -= 1 if kind == DATA else 1 + (size >> 6)
            if kind == DATA and not flags & PADDED:
                if stop > end:
                    self._data_left = stop - end
                    self._data_stream_id = stream_id
                    self._data_flags = flags
                    self._begin_data(flags & ~END_STREAM, stream_id, data, start, end, size)
                    return
                self._begin_data(flags, stream_id, data, start, stop, size)
            elif stop > end:
                break
            elif frames_left <= 0:
                self._keep_for_later(data, position)
                return
            elif kind == HEADERS and flags & _NOT_WHOLE_MASK == END_HEADERS:
                frames_left -= 1
                self._whole_block(stream_id, data[start:stop], flags & END_STREAM == END_STREAM)
            else:
                frames_left -= _SETTINGS_COST if kind == SETTINGS else 1
                self._frame(kind, flags, stream_id, data[start:stop])
            position = stop
        if position < end:
            self._partial += memoryview(data)[position:]
            self._needed = FRAME_HEAD_BYTES if end - position < FRAME_HEAD_BYTES else stop - position
            if position or not goes_on:
                self.begun_count += 1

    def _is_turn_over(self) -> bool:
        """Whether frames have been read for long, since the first look at the clock."""
        now_ns = self._clock()
        self._turn_end_ns = self._turn_end_ns or now_ns + _TURN_NS
        return now_ns > self._turn_end_ns

    def _keep_for_later(self, data: bytes, position: int) -> None:
        """The turn is over: the rest is read in the next one."""
        self._partial += memoryview(data)[position:]
        self._needed = FRAME_HEAD_BYTES
        self.begun_count += 1
        self.has_backlog = True

    def _take_preface(self, data: bytes) -> int:
        if not PREFACE.startswith(data[: len(PREFACE)]):
            raise ConnectionFault(PROTOCOL_ERROR, "not an HTTP/2 connection preface")
        if len(data) < len(PREFACE):
            return 0
        self._is_preface_done = True
        return len(PREFACE)

    def _take_more_data(self, data: bytes) -> int:
        taken = min(self._data_left, len(data))
        self._data_left -= taken
        is_end = not self._data_left and bool(self._data_flags & END_STREAM)
        self._continue_data(self._data_stream_id, data, taken, is_end)
        return taken


class HeaderBlockAssembly:
    """A header block on its way in: HEADERS and the CONTINUATION frames that have to follow it at once."""

    __slots__ = ("_block", "_frames", "_max_bytes", "_max_frames", "is_end", "is_open", "stream_id")

    def __init__(self, max_bytes: int, max_frames: int) -> None:
        self._max_bytes = max_bytes
        self._max_frames = max_frames
        self._block = bytearray()
        self._frames = 0
        self.is_open = False
        self.stream_id = 0
        self.is_end = False

    def begin(self, flags: int, stream_id: int, payload: bytes) -> bytes | None:
        """HEADERS; the block, where this is all of it."""
        if flags & PADDED:
            payload = without_padding(payload)
        if flags & HAS_PRIORITY:
            if len(payload) < 5:
                raise ConnectionFault(FRAME_SIZE_ERROR, "a HEADERS frame is cut short")
            payload = payload[5:]
        self.stream_id = stream_id
        self.is_end = bool(flags & END_STREAM)
        if len(payload) > self._max_bytes:
            raise ConnectionFault(ENHANCE_YOUR_CALM, "a header block is too large")
        if flags & END_HEADERS:
            return payload
        self.is_open = True
        self._block = bytearray(payload)
        self._frames = 0
        return None

    def add(self, flags: int, payload: bytes) -> bytes | None:
        """CONTINUATION; the block, where this completes it."""
        if not self.is_open:
            raise ConnectionFault(PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        self._block += payload
        self._frames += 1
        if len(self._block) > self._max_bytes or self._frames > self._max_frames:
            raise ConnectionFault(ENHANCE_YOUR_CALM, "a header block is too large")
        if not flags & END_HEADERS:
            return None
        self.is_open = False
        return bytes(self._block)


def without_padding(payload: bytes) -> bytes:
    """The content of a padded frame."""
    if not payload or payload[0] >= len(payload):
        raise ConnectionFault(PROTOCOL_ERROR, "padding is longer than its frame")
    return payload[1 : len(payload) - payload[0]]
