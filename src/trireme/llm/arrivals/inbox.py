"""Where other threads leave what the engine's own thread is to do: the one crossing between them."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

log = logging.getLogger(__name__)

Message = Callable[[], None]


class Inbox:
    """`post` and `close` may be called from any thread; the rest belongs to the engine's."""

    def __init__(self) -> None:
        self.closing = ""
        """Why the engine is to end, or has; "" before that."""
        self._messages: deque[Message] = deque()
        self._received: deque[Message] = deque()
        """What was taken out, and is not done yet."""
        self._changed = threading.Condition()
        self._has_ended = False
        """Whether nobody looks any more."""

    def post(self, message: Message) -> bool:
        """Leaves a message; False where nobody will do it any more."""
        with self._changed:
            if self._has_ended:
                return False
            self._messages.append(message)
            self._changed.notify()
            return True

    def close(self, why: str) -> None:
        """Lets the engine end, for the first reason that was given."""
        with self._changed:
            self.closing = self.closing or why
            self._changed.notify()

    def do_all(self, may_wait: bool) -> None:
        """Does what was left; `may_wait`: there is nothing else to do until something is."""
        with self._changed:
            if may_wait:
                self._changed.wait_for(lambda: self._messages or self.closing)
            self._take_out()
        while self._received:
            self._received.popleft()()

    def end(self) -> None:
        """Does the last ones, whatever they raise; nothing can be left any more."""
        with self._changed:
            self._has_ended = True
            self._take_out()
        while self._received:
            try:
                self._received.popleft()()
            except Exception:  # others are still to be done
                log.exception("a message to the engine could not be followed")

    def _take_out(self) -> None:
        self._received += self._messages
        self._messages.clear()
