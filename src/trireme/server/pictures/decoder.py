"""Keeps decoder processes and gives them pictures. A picture that ends one, or takes too long, is refused, and the next
one gets a new process."""

from __future__ import annotations

import importlib.util
import json
import os
import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import IO, Final

from trireme.config.picture_parameters import PictureConfig
from trireme.core.elements import Buffer
from trireme.core.errors import (
    InvalidArgumentError,
    ServingError,
    UnavailableError,
    UnsupportedError,
    UnsupportedMediaError,
)
from trireme.core.tensor import Tensor
from trireme.core.threads.variables import THREAD_VARIABLES
from trireme.machine.helper_process import HelperProcess
from trireme.server.pictures.message import ANSWER, DONE, REQUEST, UNSUPPORTED, read_exactly
from trireme.server.pictures.picture_input import PictureInput

PROGRAM: Final = "trireme.server.pictures.decoder_main"
MAX_SECONDS: Final = 20.0
"""For one picture; the largest allowed take a few."""

MAX_WAITING_BYTES: Final = 512 << 20
"""Of requests with pictures that are not decoded yet, and of what becomes of them; one alone may be larger."""


class PictureDecoder:
    """Used on threads, each of which has a process for as long as it decodes; idle ones are kept."""

    def __init__(self, max_seconds: float = MAX_SECONDS) -> None:
        self._max_seconds = max_seconds
        self._idle: list[HelperProcess] = []
        self._lock = threading.Lock()
        self._is_closed = False
        self._waiting_bytes = 0

    def reserve(self, size_bytes: int) -> None:
        """So much waits for its turn, until `release`, be its client still there or not; raises UnavailableError where
        there is no room for it."""
        with self._lock:
            if self._waiting_bytes + size_bytes > MAX_WAITING_BYTES and self._waiting_bytes:
                raise UnavailableError("too many pictures wait to be decoded; try again later")
            self._waiting_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """The counterpart of `reserve`."""
        with self._lock:
            self._waiting_bytes -= size_bytes

    def tensor(self, files: Sequence[Buffer], picture_input: PictureInput) -> Tensor:
        """One input of all the pictures; raises ServingError that says which one is wrong."""
        if importlib.util.find_spec("PIL") is None:
            raise UnsupportedError("pictures need the package 'pillow' in the server's environment; pip install pillow")
        config = picture_input.config
        front = (len(files),) if picture_input.has_batch or config.has_batch_dim else ()
        if not front and len(files) > 1:
            raise InvalidArgumentError(f"input '{config.input_name}' has no batch dimension and takes one picture")
        parts = []
        for number, content in enumerate(files, 1):
            try:
                parts.append(self._decode(content, config))
            except ServingError as error:
                where = f"picture {number} of input" if len(files) > 1 else "input"
                raise type(error)(f"{where} '{config.input_name}': {error.message}") from None
        return Tensor(config.input_name, config.datatype, (*front, *config.item_shape), b"".join(parts))

    def close(self) -> None:
        """Ends the processes; those that are at work end with their picture."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for process in idle:
            process.end()

    def _decode(self, content: Buffer, config: PictureConfig) -> bytes:
        process = self._take()
        settings = json.dumps(asdict(config)).encode()
        try:
            kind, data = process.ask(
                [REQUEST.pack(len(settings), len(content)), settings, content], _read_answer, self._max_seconds
            )
        except (OSError, EOFError):
            process.end()
            reason = f"it took longer than {self._max_seconds:g} s" if process.was_late else "its decoder ended"
            raise InvalidArgumentError(f"the picture cannot be decoded: {reason}") from None
        self._give_back(process)
        if kind == DONE:
            return data
        message = data.decode("utf-8", "replace")
        raise UnsupportedMediaError(message) if kind == UNSUPPORTED else InvalidArgumentError(message)

    def _take(self) -> HelperProcess:
        with self._lock:
            while self._idle:
                process = self._idle.pop()
                if process.exit_code is None:
                    return process
                process.end()
        threads = dict.fromkeys(THREAD_VARIABLES, "1")
        return HelperProcess("-m", PROGRAM, environment={**os.environ, **threads})

    def _give_back(self, process: HelperProcess) -> None:
        with self._lock:
            if not self._is_closed and not process.was_late:
                self._idle.append(process)
                return
        process.end()


def _read_answer(stream: IO[bytes]) -> tuple[int, bytes]:
    kind, size = ANSWER.unpack(read_exactly(stream, ANSWER.size))
    return kind, read_exactly(stream, size)
