"""The way from a model's process to the server, as pb_utils uses it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from trireme.backends.python.channel.arena import Arena, Attachments

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


class Channel(Protocol):
    """Every method may be called from any thread."""

    arena: Arena | None
    """Where large tensors are put; None where everything travels inside the messages."""
    attachments: Attachments | None
    """The memory of whoever batches come from, mapped here."""
    server_arena: Arena | None
    server_attachments: Attachments | None
    """The same for calls of the server, from which batches do not come while another process has leased the worker."""

    def send(self, message: tuple[Any, ...]) -> None:
        """Sends, and blocks while the server does not read."""

    def gather(self) -> AbstractContextManager[None]:
        """What this thread sends inside is sent at its end, at once: for who sends many small messages together."""

    def post(self, message: tuple[Any, ...]) -> None:
        """Sends as soon as possible, but never waits for another sender: for finalizers, which may run anywhere."""

    def wait_until(self, is_done: Callable[[], object]) -> None:
        """Blocks until the condition holds, handling messages meanwhile."""

    def poll(self) -> None:
        """Handles the messages that have arrived."""

    def watch(self, loop: AbstractEventLoop) -> None:
        """The loop, running in this thread, handles messages as well until as many calls of `unwatch`."""

    def unwatch(self, loop: AbstractEventLoop) -> None:
        """The counterpart of `watch`."""
