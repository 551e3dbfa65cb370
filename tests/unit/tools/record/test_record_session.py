"""A recording that is fetched: Ctrl+C loses nothing that the server has given away."""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from trireme.core.recorded_call import RecordedCall
from trireme.protocol.recording.calls import encode_begin, encode_call, encode_end
from trireme.protocol.recording.frames import MAGIC
from trireme.tools.record.progress import Progress
from trireme.tools.record.session import RecordSession, RecordWishes
from trireme.tools.record.writing import RecordingFile


class Server:
    """Answers as a server does, and has Ctrl+C pressed during the first fetch."""

    place = "a server"

    def __init__(self, presses: int) -> None:
        self.presses = presses
        self.asked: list[str] = []

    def post(self, path: str, body: bytes) -> bytes:
        what = path.rpartition("/")[2]
        self.asked.append(what)
        if what == "start":
            return MAGIC + encode_begin({"id": "x", "sample": 1.0})
        if what == "stop":
            return b"{}"
        if "stop" in self.asked:
            return encode_end({"seen": 1})
        for _ in range(self.presses):
            os.kill(os.getpid(), signal.SIGINT)
        return encode_call(RecordedCall(0, "m"))


def session_of(server: Any) -> RecordSession:
    return RecordSession(server, RecordWishes(), Progress(io.StringIO()), lambda seconds: None)


def test_the_fetch_under_way_is_finished(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    server = Server(1)
    session = session_of(server)
    file = RecordingFile(str(tmp_path / "a.rec"))
    file.write(session.begin())
    session.run(file)
    file.close()
    assert server.asked == ["start", "fetch", "stop", "fetch"]
    assert (file.call_count, file.end and file.end["seen"]) == (1, 1)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("presses", [2])
def test_pressed_twice_the_recording_is_stopped_at_once(tmp_path: Path, presses: int) -> None:
    server = Server(presses)
    session = session_of(server)
    file = RecordingFile(str(tmp_path / "a.rec"))
    file.write(session.begin())
    session.run(file)
    file.close()
    assert server.asked == ["start", "fetch", "stop", "fetch"]
    assert file.call_count == 0
