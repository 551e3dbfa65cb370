"""What stands behind pb_utils in this process: the channel to the server and what a running model may know.

pb_utils is used through module-level names, so the one runtime of the process is found here; outside a model there is
none, and what needs the server says so.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from trireme.backends.python.channel.arena import Arena, Attachments
from trireme.backends.python.pb_utils.errors import TritonModelException

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from trireme.backends.python.pb_utils.server_calls import Errands

LOADING, INITIALIZING, SERVING, ENDING = range(4)
"""The phases of a worker's life."""

parent_key: ContextVar[int] = ContextVar("parent_key", default=0)
"""The request on whose behalf the present code runs, where that is exactly one."""


class Channel(Protocol):
    """The way to the server. Every method may be called from any thread."""

    arena: Arena | None
    """Where large tensors are put; None where everything travels inside the messages."""
    attachments: Attachments | None
    """The server's memory, mapped here."""

    def send(self, message: tuple[Any, ...]) -> None:
        """Sends, and blocks while the server does not read."""

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


class Runtime:
    """The state of the one model that this process runs."""

    __slots__ = (
        "cancelled",
        "channel",
        "errands",
        "granted",
        "instance_name",
        "is_decoupled",
        "model_dir",
        "phase",
        "verbose_level",
    )

    def __init__(self, channel: Channel, errands: Errands) -> None:
        self.channel = channel
        self.errands = errands
        self.model_dir = ""
        self.is_decoupled = False
        self.verbose_level = 0
        self.instance_name = ""
        self.phase = LOADING
        self.cancelled: set[int] = set()  # keys of requests that nobody waits for any more
        self.granted: dict[int, int] = {}  # by key: how many responses may come in all, where that is limited


_runtimes: list[Runtime] = []


def install(runtime: Runtime) -> None:
    """From now on pb_utils speaks for this runtime."""
    _runtimes.append(runtime)


def uninstall(runtime: Runtime) -> None:
    """The counterpart of `install`; the runtime before it, if any, speaks again."""
    if runtime in _runtimes:
        _runtimes.remove(runtime)


def find() -> Runtime | None:
    """The runtime, or None outside a model."""
    return _runtimes[-1] if _runtimes else None


def current() -> Runtime:
    """The runtime; raises TritonModelException outside a model."""
    if not _runtimes:
        raise TritonModelException("this needs the server, and this process does not run one of its models")
    return _runtimes[-1]


def forget() -> None:
    """There is no runtime any more: a forked child must not speak on its parent's channel."""
    _runtimes.clear()
