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
from trireme.tools.client.errors import AnswerError, ClientError
from trireme.tools.client.http_client import HttpClient
from trireme.tools.record.progress import Progress, size_text
from trireme.tools.record.writing import RecordingFile

_PAUSE_S = 0.2
_MUCH_BYTES = 1 << 20
"""Where so much came at once, more is fetched without a pause."""


@dataclass(frozen=True, slots=True)
class RecordWishes:
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
    """One recording, from its start to its end; Ctrl+C ends it in good order."""

    def __init__(
        self,
        client: HttpClient,
        wishes: RecordWishes,
        progress: Progress,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._wishes = wishes
        self._progress = progress
        self._sleep = sleep
        self._id = ""

    def begin(self) -> bytes:
        """Has the server begin; the beginning of the file. Raises ClientError."""
        content = self._post("start", self._wishes.document())
        first = read_frame(BytesIO(content), len(MAGIC)) if content.startswith(MAGIC) else None
        if first is None:
            raise AnswerError(f"the server at {self._client.place} cannot record")
        self._id = str(first.header.get("id", ""))
        return content

    def run(self, file: RecordingFile) -> None:
        """Fetches until the recording is over; whatever goes wrong on the way, the server is told to end it."""
        try:
            self._fetch_all(file)
        except KeyboardInterrupt:
            self._progress.clear()
            self._post("stop", {"id": self._id})
            self._fetch_all(file)
        except ClientError:
            self._stop_quietly()
            raise
        finally:
            self._progress.clear()

    def _fetch_all(self, file: RecordingFile) -> None:
        while file.end is None:
            with _interrupted_afterwards():  # the server has given away what it sends: it would be lost
                content = self._post("fetch", {"id": self._id})
                file.write(content)
            self._progress.show(f"{file.call_count} requests, {size_text(file.added_bytes)}")
            if file.end is None and len(content) < _MUCH_BYTES:
                self._sleep(_PAUSE_S)

    def _stop_quietly(self) -> None:
        """Nothing more is fetched; it would end by itself, half a minute later."""
        try:
            self._post("stop", {"id": self._id, "discard": True})
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
