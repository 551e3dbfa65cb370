"""The file that a recording is written to: private, appended to frame by frame, whole up to its last frame."""

from __future__ import annotations

import os
import stat
from io import BytesIO
from typing import BinaryIO

from trireme.protocol.recording.calls import BEGIN, CALL, END
from trireme.protocol.recording.frames import MAGIC, Frame, NoRecordingError, read_frame, read_frames
from trireme.tools.client.errors import InputError
from trireme.tools.record.errors import RecordingFileError

_MODE = 0o600


class RecordingFile:
    """Frames as they come from the server; what does not fit is taken back, so that the file ends with a whole one.

    A file that is replaced keeps what it has until the first frame is there to be written.
    """

    def __init__(self, path: str, *, is_appended: bool = False, is_replaced: bool = False) -> None:
        self.path = path
        self.call_count = 0
        self.unfinished_count = 0
        """Calls among them whose answer was still on its way when the recording was over."""
        self.recording_id = ""
        """Of the recording that the file ends in the middle of; "" where it has none, or one that was ended."""
        self.received_count = 0
        """Calls of that recording in the file."""
        self.end: dict[str, object] | None = None
        """What the server said of the recording when it was over."""
        is_there = os.path.exists(path)
        self._file = _opened(path, is_appended, is_replaced)
        self._is_regular = stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)
        if is_appended and self._is_regular:
            self._prepare_to_append()
        size_bytes = self._file.seek(0, os.SEEK_END) if self._is_regular else 0
        self._is_to_be_emptied = is_replaced and is_there and self._is_regular
        self.size_bytes = self._size_before = 0 if is_replaced else size_bytes

    def write(self, content: bytes) -> None:
        """Whole frames, with the mark of a file in front of the first; raises RecordingFileError where there is no room
        for them all."""
        source = BytesIO(content)
        position = 0
        if content.startswith(MAGIC):
            position = len(MAGIC)
            if not self.size_bytes:
                self._append(MAGIC)
        while position < len(content):
            frame = read_frame(source, position)
            if frame is None:
                raise RecordingFileError(f"what the server sent is no part of a recording; {self.kept}")
            self._append(content[position : frame.end])
            self._note(frame)
            position = frame.end

    @property
    def kept(self) -> str:
        """For messages: what there is."""
        return f"'{self.path}' keeps the {self.call_count} requests before it"

    @property
    def added_bytes(self) -> int:
        """What this recording has added to the file."""
        return self.size_bytes - self._size_before

    def close(self) -> None:
        """Leaves no empty file behind."""
        self._file.close()
        if not self.size_bytes and self._is_regular and not self._is_to_be_emptied:
            os.unlink(self.path)

    def _append(self, content: bytes) -> None:
        try:
            self._empty()
            view = memoryview(content)
            while view:  # a disk that is nearly full takes a part
                view = view[self._file.write(view) :]
        except OSError as error:
            self._take_back()
            raise RecordingFileError(f"cannot write to '{self.path}': {error.strerror}; {self.kept}") from None
        self.size_bytes += len(content)

    def _empty(self) -> None:
        """The recording has begun: what it replaces goes. It may have been open to others."""
        if self._is_to_be_emptied:
            os.fchmod(self._file.fileno(), _MODE)
            self._file.seek(0)
            self._file.truncate()
            self._is_to_be_emptied = False

    def _take_back(self) -> None:
        try:
            os.ftruncate(self._file.fileno(), self.size_bytes)
        except OSError:  # a reader stops at the cut
            pass

    def _note(self, frame: Frame) -> None:
        kind = self._place(frame)
        if kind == CALL:
            self.call_count += 1
            self.unfinished_count += frame.header.get("is_finished") is False
        elif kind == END:
            self.end = frame.header

    def _place(self, frame: Frame) -> object:
        """Where in which recording the file ends with this frame; what kind of frame it is."""
        kind = frame.header.get("kind")
        if kind == CALL:
            self.received_count += 1
        elif kind in (BEGIN, END):
            self.recording_id = str(frame.header.get("id", "")) if kind == BEGIN else ""
            self.received_count = 0
        return kind

    def _prepare_to_append(self) -> None:
        """Cuts off a frame that was not written to its end."""
        if not self._file.seek(0, os.SEEK_END):
            return
        self._file.seek(0)
        try:
            for found in read_frames(self._file):
                if isinstance(found, Frame):
                    self._place(found)
                elif found.is_at_end:
                    self._file.truncate(found.offset)
        except (NoRecordingError, OSError) as error:
            self._file.close()
            raise InputError(f"cannot append to '{self.path}': {error}") from None


def _opened(path: str, is_appended: bool, is_replaced: bool) -> BinaryIO:
    flags = os.O_RDWR | os.O_CREAT | (0 if is_appended or is_replaced else os.O_EXCL)
    try:
        file = os.fdopen(os.open(path, flags | os.O_CLOEXEC, _MODE), "r+b", buffering=0)
    except FileExistsError:
        raise InputError(f"'{path}' is there already; --append adds to it, --overwrite replaces it") from None
    except OSError as error:
        raise InputError(f"cannot write to '{path}': {error.strerror}") from None
    return file
