"""Streams whose client takes its time: what comes for them is kept, so that no other stream waits with them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from trireme.llm.generation import TextOutput


class HeldAnswer(Protocol):
    """A stream that has something to send, and may not yet."""

    def can_go_on(self) -> bool:
        """Whether it may send by now; looks, and does nothing else."""

    def release(self) -> bool:
        """Sends what it may; whether nothing is held any more."""


class SlowStreams:
    """Waits for the clients of such streams, in a thread of its own that is started when it is first needed."""

    def __init__(self, wait_until: Callable[[Callable[[], object]], None]) -> None:
        """`wait_until` returns once the condition holds, which it looks at whenever a message has come."""
        self._wait_until = wait_until
        self._held: list[HeldAnswer] = []
        self._has_some = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, answer: HeldAnswer) -> None:
        """Takes care of an answer from now until it holds nothing."""
        with self._has_some:
            self._held.append(answer)
            self._has_some.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._main, name="llm-slow-streams", daemon=True)
                self._thread.start()
        if answer.can_go_on():  # since it was looked at last
            self._release(answer)

    def _main(self) -> None:
        try:
            while True:
                with self._has_some:
                    self._has_some.wait_for(lambda: self._held)
                self._wait_until(lambda: any(answer.can_go_on() for answer in self._held.copy()) or not self._held)
                for answer in self._held.copy():
                    if answer.can_go_on():
                        self._release(answer)
        except ConnectionResetError:  # the server is gone, and with it who would take them
            return

    def _release(self, answer: HeldAnswer) -> None:
        if answer.release():
            with self._has_some:
                if answer in self._held:
                    self._held.remove(answer)


def joined(outputs: Sequence[TextOutput]) -> TextOutput:
    """Pieces of one choice as one."""
    last = outputs[-1]
    return replace(
        last,
        text="".join(output.text for output in outputs),
        token_ids=tuple(token for output in outputs for token in output.token_ids),
        logprobs=tuple(entry for output in outputs for entry in output.logprobs),
        prompt_logprobs=next((one.prompt_logprobs for one in outputs if one.prompt_logprobs is not None), None),
    )
