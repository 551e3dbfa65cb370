"""A recording that is fetched: what does not arrive is sent again, whatever comes between."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recorder_stage import Stage

from trireme.core.errors import ServingError
from trireme.protocol.recording.calls import encode_begin, encode_calls, encode_end
from trireme.protocol.recording.frames import MAGIC
from trireme.tools.client.errors import AnswerError, ClientError, UnreachableError, answer_error
from trireme.tools.record.errors import RecordingFileError
from trireme.tools.record.progress import Progress
from trireme.tools.record.reading import RecordingReader
from trireme.tools.record.session import RecordOptions, RecordSession
from trireme.tools.record.writing import RecordingFile


class Server:
    """A server's recorder behind a connection that the test can break."""

    place = "a server"

    def __init__(self) -> None:
        self.stage = Stage()
        self.asked: list[str] = []
        self.accidents: list[Callable[[], object]] = []
        """One for each answer to a fetch, which happens before it arrives."""

    def infer(self, *ids: str) -> None:
        for request_id in ids:
            self.stage.ask(id=request_id)
            self.stage.models.answer()

    def post(self, path: str, body: bytes) -> bytes:
        what = path.rpartition("/")[2]
        self.asked.append(what)
        try:
            content = self.answer(what, json.loads(body))
        except ServingError as error:
            raise AnswerError(error.message) from None
        if what == "fetch" and self.accidents:
            self.accidents.pop(0)()
        return content

    def answer(self, what: str, document: dict[str, Any]) -> bytes:
        recorder = self.stage.recorder
        if what == "start":
            return MAGIC + encode_begin(recorder.start(document).status())
        if what == "stop":
            return json.dumps(recorder.stop(document["id"], bool(document.get("discard")))).encode()
        calls, recording = recorder.fetch(document["id"], document["received"])
        return encode_calls(calls) + (encode_end(recording.status()) if recording.is_over else b"")


def lose() -> None:
    raise UnreachableError("the connection to a server broke")


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def server() -> Server:
    return Server()


def session_of(server: Any, limit: int | None = None) -> RecordSession:
    return RecordSession(server, RecordOptions(limit=limit), Progress(io.StringIO()), lambda seconds: None)


def ids_in(path: Path) -> list[str]:
    reader = RecordingReader(str(path))
    assert reader.contents.warnings() == []
    found = [call.request_id for _, call in reader.calls()]
    reader.close()
    return found


def test_ctrl_c_in_a_fetch_loses_nothing(server: Server, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    session, file = session_of(server), RecordingFile(str(tmp_path / "a.rec"))
    assert not session.begin(file)
    server.infer("one", "two")
    server.accidents = [press]
    session.run(file)
    file.close()
    assert server.asked == ["start", "fetch", "stop", "fetch", "fetch"]
    assert ids_in(tmp_path / "a.rec") == ["one", "two"]
    assert signal.getsignal(signal.SIGINT) is before


def test_an_answer_that_does_not_arrive_is_sent_again(server: Server, tmp_path: Path) -> None:
    session, file = session_of(server, limit=3), RecordingFile(str(tmp_path / "a.rec"))
    session.begin(file)
    server.infer("one", "two")
    server.accidents = [lose, lose, lambda: server.infer("three"), lose, lambda: None, lose]
    session.run(file)
    file.close()
    assert server.accidents == []
    assert ids_in(tmp_path / "a.rec") == ["one", "two", "three"]


def test_a_file_that_has_lost_what_arrived_is_not_gone_on_with(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    session, file = session_of(server), RecordingFile(str(path))
    session.begin(file)
    server.infer("one", "two")
    server.accidents = [lambda: None, *[lose] * 9]
    with pytest.raises(UnreachableError, match="keeps the 2 requests before it; --append goes on from there"):
        session.run(file)
    file.close()
    with path.open("r+b") as written:  # as if it had been killed while it wrote the second
        written.truncate(path.stat().st_size - 5)
    server.accidents = []
    server.infer("three")
    again = RecordingFile(str(path), is_appended=True)
    with pytest.raises(AnswerError, match="recording already"):
        session_of(server).begin(again)  # the second was told to have arrived
    again.close()


def test_a_command_that_was_killed_goes_on(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    file = RecordingFile(str(path))
    session_of(server).begin(file)
    server.infer("one", "two", "three")
    content = server.post("/v2/recording/fetch", json.dumps({"id": file.recording_id, "received": 0}).encode())
    file.write(content)
    file.close()
    with path.open("r+b") as written:  # it was killed while it wrote the third
        written.truncate(path.stat().st_size - 5)
    server.infer("four")
    again = RecordingFile(str(path), is_appended=True)
    session = session_of(server)
    assert session.begin(again)
    server.stage.recorder.stop("")
    session.run(again)
    again.close()
    assert ids_in(path) == ["one", "two", "three", "four"]
    assert again.call_count == 2


def test_an_appended_file_whose_recording_is_no_more_gets_another(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    file = RecordingFile(str(path))
    session = session_of(server)
    session.begin(file)
    server.infer("one")
    server.accidents = [lambda: server.stage.recorder.stop("", is_discarded=True)]
    with pytest.raises(AnswerError, match=r"no such recording.*\n.*keeps the 1 requests before it"):
        session.run(file)
    file.close()
    again = RecordingFile(str(path), is_appended=True)
    session = session_of(server, limit=1)
    assert not session.begin(again)
    assert again.recording_id != file.recording_id
    server.infer("two")
    session.run(again)
    again.close()
    reader = RecordingReader(str(path))
    assert [call.request_id for _, call in reader.calls()] == ["one", "two"]
    reader.close()


class PressingFile:
    """A file that takes a part at a time, with Ctrl+C pressed when it has a half."""

    def __init__(self, file: Any, least_bytes: int) -> None:
        self._file = file
        self._least_bytes = least_bytes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, view: memoryview) -> int:
        if len(view) < self._least_bytes:
            return int(self._file.write(view))
        self._least_bytes = 1 << 30
        written = int(self._file.write(view[: len(view) // 2]))
        press()
        return written


def test_ctrl_c_in_the_middle_of_a_frame_waits_for_its_end(server: Server, tmp_path: Path) -> None:
    session, file = session_of(server), RecordingFile(str(tmp_path / "a.rec"))
    session.begin(file)
    server.infer("one", "x" * 1000, "three")
    file._file = PressingFile(file._file, 1000)  # type: ignore[assignment]
    session.run(file)
    file.close()
    assert ids_in(tmp_path / "a.rec") == ["one", "x" * 1000, "three"]
    assert "stop" in server.asked


def test_where_the_file_takes_no_more_the_server_forgets_the_rest(server: Server, tmp_path: Path) -> None:
    session, file = session_of(server), RecordingFile(str(tmp_path / "a.rec"))
    session.begin(file)
    server.infer("one")
    file._file.close()
    file._file = open(os.devnull, "rb", buffering=0)  # noqa: SIM115
    with pytest.raises(RecordingFileError, match="cannot write to "):
        session.run(file)
    file.close()
    assert server.asked[-1] == "stop"
    assert server.stage.recorder.status() == {"is_allowed": True, "is_active": False}


def test_models_that_the_server_does_not_have_are_told() -> None:
    class Index:
        def index(self) -> list[dict[str, str]]:
            return [{"name": "adder"}, {"name": "shout"}]

    options = RecordOptions(models=("adder", "addr"))
    session = RecordSession(Index(), options, Progress(io.StringIO()))  # type: ignore[arg-type]
    assert session.warnings() == ["the server has no model 'addr'; did you mean 'adder'?"]


@pytest.mark.parametrize(
    "answer", [b"<html>", answer_error("the server answered 404 Not Found", is_not_found=True)], ids=["page", "404"]
)
def test_what_cannot_record_is_told(tmp_path: Path, answer: bytes | ClientError) -> None:
    class Page:
        place = "http://host"

        def post(self, path: str, body: bytes) -> bytes:
            if isinstance(answer, ClientError):
                raise answer
            return answer

    file = RecordingFile(str(tmp_path / "a.rec"))
    with pytest.raises(AnswerError, match="the server at http://host cannot record"):
        session_of(Page()).begin(file)
    file.close()
    assert list(tmp_path.iterdir()) == []
