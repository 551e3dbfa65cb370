"""A recording read back: its calls in the order in which they were begun, read from the file one at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from trireme.core.recorded_call import RecordedCall
from trireme.protocol.recording.calls import BEGIN, CALL, END, BadCallError, decode_call
from trireme.protocol.recording.frames import Damage, Frame, NoRecordingError, read_frame, read_frames
from trireme.protocol.recording.members import MemberError, count_in
from trireme.tools.client.errors import InputError

_BETWEEN_NS = 1_000_000_000
"""Between two recordings in one file."""
_MOST_DAMAGES = 5
"""Told one by one."""


@dataclass(frozen=True, slots=True)
class CallPlace:
    """Where a call lies in the file, and when it was made, counted from the first recording on."""

    at_ns: int
    offset: int
    model: str
    correlation_id: int | str = 0


@dataclass(slots=True)
class Contents:
    """What a file holds."""

    places: list[CallPlace] = field(default_factory=list)
    """By time."""
    begins: list[str] = field(default_factory=list)
    """Where each recording in it comes from, for people."""
    end_count: int = 0
    dropped_count: int = 0
    """Requests that the server had no room for."""
    damages: list[Damage] = field(default_factory=list)
    """The first of them, and the one at the end."""
    damage_count: int = 0
    unreadable_count: int = 0
    """Frames that are whole and describe no call."""

    def add_damage(self, damage: Damage) -> None:
        """One more place that cannot be read."""
        self.damage_count += 1
        if damage.is_at_end or len(self.damages) < _MOST_DAMAGES:
            self.damages.append(damage)

    @property
    def seconds(self) -> float:
        """From the first call to the last."""
        return (self.places[-1].at_ns - self.places[0].at_ns) / 1e9 if self.places else 0.0

    @property
    def models(self) -> dict[str, int]:
        """The calls of each model."""
        return dict(Counter(place.model for place in self.places))

    def warnings(self) -> list[str]:
        """What is missing, in sentences."""
        told = []
        for damage in self.damages:
            if damage.is_at_end:
                told.append(f"the file is cut off at byte {damage.offset}; what is before it is used")
            else:
                told.append(f"{damage.size_bytes} bytes at byte {damage.offset} are damaged and left out")
        if self.damage_count > len(self.damages):
            told.append(f"{self.damage_count - len(self.damages)} more places are damaged and left out")
        if self.unreadable_count:
            entries = f"{self.unreadable_count} entries describe no request and are left out"
            told.append("1 entry describes no request and is left out" if self.unreadable_count == 1 else entries)
        if self.dropped_count:
            requests = "1 request, which is" if self.dropped_count == 1 else f"{self.dropped_count} requests, which are"
            told.append(f"the server had no room for {requests} not in the file")
        if self.end_count < len(self.begins) and not any(damage.is_at_end for damage in self.damages):
            told.append("a recording in the file was not ended in good order")
        return told


class RecordingReader:
    """An open file; used by one thread at a time."""

    def __init__(self, path: str) -> None:
        """Reads it through once; raises InputError where it is no recording."""
        self.path = path
        try:
            self._file: BinaryIO = open(path, "rb")  # noqa: SIM115
        except OSError as error:
            raise InputError(f"cannot read '{path}': {error.strerror}") from None
        try:
            self.contents = _contents(self._file)
        except NoRecordingError as error:
            self._file.close()
            raise InputError(f"'{path}' is no recording: {error}") from None
        except OSError as error:
            self._file.close()
            raise InputError(f"cannot read '{path}': {error.strerror}") from None

    def call(self, place: CallPlace) -> RecordedCall:
        """The call that lies there; raises InputError where the file has changed meanwhile."""
        frame = read_frame(self._file, place.offset)
        if frame is None:
            raise InputError(f"'{self.path}' has changed while it was read")
        return decode_call(frame)

    def calls(self) -> Iterator[tuple[CallPlace, RecordedCall]]:
        """All of them, by time."""
        for place in self.contents.places:
            yield place, self.call(place)

    def close(self) -> None:
        self._file.close()


def _contents(file: BinaryIO) -> Contents:
    contents = Contents()
    shift_ns = last_ns = 0
    for found in read_frames(file):
        if isinstance(found, Damage):
            contents.add_damage(found)
            continue
        kind = found.header.get("kind")
        if kind == CALL:
            place = _place(found, shift_ns)
            if place is None:
                contents.unreadable_count += 1
            else:
                contents.places.append(place)
                last_ns = max(last_ns, place.at_ns)
        elif kind == BEGIN:
            shift_ns = last_ns + _BETWEEN_NS if contents.begins else 0
            contents.begins.append(_origin(found.header))
        elif kind == END:
            contents.end_count += 1
            contents.dropped_count += _dropped(found.header)
    contents.places.sort(key=lambda place: (place.at_ns, place.offset))
    return contents


def _place(frame: Frame, shift_ns: int) -> CallPlace | None:
    try:
        call = decode_call(frame)
    except BadCallError:
        return None
    return CallPlace(call.at_ns + shift_ns, frame.offset, call.model, call.correlation_id)


def _origin(begin: Mapping[str, Any]) -> str:
    """Who recorded, and how much of it; what a file says of that may be anything."""
    own = begin.get("trireme")
    server = f"Trireme {own}" if own else f"{begin.get('server')} {begin.get('server_version')}"
    return f"recorded from {server}, sample {begin.get('sample', 1)}"


def _dropped(end: Mapping[str, Any]) -> int:
    try:
        return count_in(end, "dropped", 0)
    except MemberError:
        return 0
