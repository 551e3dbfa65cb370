"""What a request that waits is answered with, in place of a worker's way to its client."""

from __future__ import annotations

from typing import Any

from trireme.backends.python.pb_utils.errors import ErrorCode


class Sender:
    """Of a request whose client may have left; remembers what it was to send."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.codes: list[ErrorCode] = []
        self.is_gone = self.is_closed = False

    def is_cancelled(self) -> bool:
        return self.is_gone

    def has_credit(self) -> bool:
        return True

    def send(self, response: Any, flags: int) -> None:
        self.is_closed = True
        self.told.append(str(response.error().message()))
        self.codes.append(response.error().code())
