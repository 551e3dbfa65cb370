"""Has a server record, and fetches what it has until one of them ends it."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from types import FrameType
from typing import Any

from trireme.protocol.recording.frames import MAGIC, read_frame
from trireme.tools.client.errors import AnswerError, ClientError, NotFoundError, UnreachableError
from trireme.tools.client.http_client import HttpClient
from trireme.tools.client.model import nearest
from trireme.tools.record.errors import RecordingFileError
from trireme.tools.record.progress import Progress, size_text
from trireme.tools.record.writing import RecordingFile

_PAUSE_S = 0.2
_RETRIES, _RETRY_PAUSE_S = 5, 1.0
"""Where the connection breaks; the server keeps what has not arrived, and ends a recording that nobody fetches."""
_MUCH_BYTES = 1 << 20
"""Where so much came at once, more is fetched without a pause."""


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """What is asked of the server."""

    sample: float = 1.0
    limit: int | None = None
    max_bytes: int | None = None
    duration_s: float | None = None
    max_call_bytes: int | None = None
    models: tuple[str, ...] = ()
    has_answers: bool = True

    def document(self) -> dict[str, Any]:
        """As the server takes it."""
        given = {
            "limit": self.limit,
            "max_bytes": self.max_bytes,
            "duration_s": self.duration_s,
            "max_call_bytes": self.max_call_bytes,
        }
        return {
            "sample": self.sample,
            "models": list(self.models),
            "answers": self.has_answers,
            **{name: value for name, value in given.items() if value is not None},
        }


class RecordSession:
    """One recording, from its start to its end; Ctrl+C ends it in good order. What has not arrived in the file stays
    with the server, so that a connection may break, and a command that was killed be begun again."""

    def __init__(
        self,
        client: HttpClient,
        options: RecordOptions,
        progress: Progress,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._options = options
        self._progress = progress
        self._sleep = sleep

    def warnings(self) -> list[str]:
        """Models that are to be recorded and that the server does not have; it may get them later."""
        try:
            known = {entry["name"] for entry in self._client.index()} if self._options.models else set()
        except ClientError:  # not everybody may see the index
            return []
        missing = [name for name in self._options.models if name not in known]
        return [f"the server has no model '{name}'{nearest(name, sorted(known))}" for name in missing]

    def begin(self, file: RecordingFile) -> bool:
        """Goes on with the recording that an appended file breaks off in, where the server still has it, and has the
        server begin one elsewhere; whether it goes on. Raises ClientError."""
        if file.recording_id and self._goes_on(file):
            return True
        try:
            content = self._post("start", self._options.document())
        except NotFoundError:
            raise AnswerError(
                f"the server at {self._client.place} cannot record: it has no /v2/recording, which is Trireme's own; "
                "'trireme replay' plays to any server of the v2 protocol"
            ) from None
        if not content.startswith(MAGIC) or read_frame(BytesIO(content), len(MAGIC)) is None:
            raise AnswerError(f"the server at {self._client.place} cannot record")
        file.write(content)
        return False

    def run(self, file: RecordingFile) -> None:
        """Fetches until the recording is over. Where the file cannot be written any further, the server is told to
        forget the rest."""
        try:
            self._fetch_all(file)
        except KeyboardInterrupt:
            self._progress.clear()
            self._post("stop", {"id": file.recording_id})
            self._fetch_all(file)
        finally:
            self._progress.clear()

    def _goes_on(self, file: RecordingFile) -> bool:
        try:
            file.write(self._fetch(file))
        except AnswerError:
            return False
        return True

    def _fetch_all(self, file: RecordingFile) -> None:
        while file.end is None:
            content = self._fetch_patiently(file)
            self._keep(file, content)
            self._progress.show(f"{file.call_count} requests, {size_text(file.added_bytes)}")
            if file.end is None and len(content) < _MUCH_BYTES:
                self._sleep(_PAUSE_S)

    def _keep(self, file: RecordingFile, content: bytes) -> None:
        try:
            with _interrupted_afterwards():  # a frame is written whole
                file.write(content)
        except RecordingFileError:
            self._discard(file)
            raise

    def _fetch_patiently(self, file: RecordingFile) -> bytes:
        for _ in range(_RETRIES):
            try:
                return self._fetch(file)
            except UnreachableError:
                self._progress.show(f"{file.call_count} requests; the connection broke, and is tried again")
                self._sleep(_RETRY_PAUSE_S)
        try:
            return self._fetch(file)
        except UnreachableError as error:
            raise UnreachableError(
                f"{error}\n{file.kept}; --append goes on from there, if the server has kept the recording, which it "
                "does for half a minute"
            ) from None

    def _fetch(self, file: RecordingFile) -> bytes:
        try:
            return self._post("fetch", {"id": file.recording_id, "received": file.received_count})
        except AnswerError as error:  # such as that of a server that was restarted
            raise AnswerError(f"{error}\n{file.kept}") from None

    def _discard(self, file: RecordingFile) -> None:
        """Nothing more is fetched; it would end by itself, half a minute later."""
        try:
            self._post("stop", {"id": file.recording_id, "discard": True})
        except ClientError:
            pass

    def _post(self, what: str, document: Mapping[str, Any]) -> bytes:
        return self._client.post(f"/v2/recording/{what}", json.dumps(document).encode())


@contextmanager
def _interrupted_afterwards() -> Iterator[None]:
    """Ctrl+C waits for the end of the block; pressed once more, it does not."""
    is_pressed = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal is_pressed
        if is_pressed:
            raise KeyboardInterrupt
        is_pressed = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if is_pressed:
        raise KeyboardInterrupt
