"""What stands behind pb_utils in this process: the channel to the server and what a running model may know.

pb_utils is used through module-level names, so the one runtime of the process is found here; outside a model there is
none, and what needs the server says so.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from trireme.backends.python.channel.channel import Channel
from trireme.backends.python.pb_utils.errors import TritonModelException
from trireme.backends.python.pb_utils.response import InferenceResponse
from trireme.backends.python.pb_utils.response_iterator import ResponseIterator

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

LOADING, INITIALIZING, SERVING, ENDING = range(4)
"""The phases of a worker's life."""

parent_key: ContextVar[int] = ContextVar("parent_key", default=0)
"""The request on whose behalf the present code runs, where that is exactly one."""


CallRequest = tuple[str, int, tuple[Any, ...]]
"""Model name, version, and the request as a CALL message has it."""


class ServerCallsPort(Protocol):
    """What a model can ask of the server, as `ServerCalls` does it."""

    def ask(self, kind: int, operation: str, arguments: tuple[Any, ...]) -> Any:
        """Sends CONTROL or METRIC and waits for the value; raises TritonModelException with the server's message."""

    def execute(self, request: CallRequest, is_decoupled: bool) -> InferenceResponse | ResponseIterator:
        """Runs the request on its model and waits: the response, or an iterator over the responses."""

    def execute_async(
        self, request: CallRequest, is_decoupled: bool, loop: AbstractEventLoop
    ) -> Awaitable[InferenceResponse | ResponseIterator]:
        """The same for the loop that runs in this thread, without blocking it."""


class Runtime:
    """The state of the one model that this process runs."""

    __slots__ = (
        "cancelled",
        "channel",
        "credits",
        "devices",
        "instance_name",
        "is_decoupled",
        "missing_inputs",
        "model_dir",
        "phase",
        "sender_lock",
        "server_calls",
        "verbose_level",
    )

    def __init__(self, channel: Channel, server_calls: ServerCallsPort) -> None:
        self.channel = channel
        self.server_calls = server_calls
        self.model_dir = ""
        self.is_decoupled = False
        self.verbose_level = 0
        self.instance_name = ""
        self.phase = LOADING
        self.missing_inputs: dict[str, list[str]] = {}  # asked for and not there, with those that were
        self.cancelled: set[int] = set()  # keys of requests that nobody waits for any more
        self.devices: tuple[str, ...] = ()  # that a model has taken by itself, as it says after it was loaded
        self.sender_lock = threading.Lock()  # held while a request gets its sender, whichever thread asks first
        self.credits: dict[int, int] = {}  # by key: how many responses may come in all, where that is limited


class _FirstUse:
    """The moment at which a process that a model forked gets a runtime of its own, whichever thread comes first."""

    def __init__(self, connect: Callable[[], Runtime]) -> None:
        self._connect = connect
        self._lock = threading.Lock()

    def install(self) -> None:
        with self._lock:
            if not _runtimes:
                install(self._connect())


_runtimes: list[Runtime] = []
_first_uses: list[_FirstUse] = []
"""Of a process that a model forked, at most one."""


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
        if not _first_uses:
            raise TritonModelException("this needs the server, and this process does not run one of its models")
        _first_uses[0].install()
    return _runtimes[-1]


def forget(connect: Callable[[], Runtime]) -> None:
    """A forked child must not speak on its parent's channel: it has no runtime until it needs one, and then what
    `connect` gives."""
    _runtimes.clear()
    _first_uses[:] = [_FirstUse(connect)]
