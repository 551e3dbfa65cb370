"""Work that takes too long for the event loop: from which size on, and in which order.

What is below the size is done at once, on the event loop's thread; the detour costs more than it would.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic
from typing import Any, Final, TypeVar

from trireme.core.datatype import BYTES
from trireme.core.elements import count_strings
from trireme.core.tensor import CountedTensor, Tensor
from trireme.core.threads.giving_way import UnwantedError, begin, end, give_way

INLINE_INFLATE_BYTES: Final = 8 << 10
"""Larger compressed messages are inflated beside the event loop: they may become a thousand times as large."""
INLINE_INFLATED_BYTES: Final = 16 << 10
"""So are those that become larger than this."""
INLINE_BYTES_PER_READ: Final = 256 << 10
"""So is everything, once so much was inflated at once of what a client sent in one go."""
INLINE_DEFLATE_BYTES: Final = 128 << 10
"""Larger messages are compressed there."""
INLINE_STRINGS_BYTES: Final = 16 << 10
"""The strings of larger inputs are counted there, where there are many."""
INLINE_STRINGS: Final = 2048
_STRINGS_AT_ONCE: Final = 8192
INLINE_JSON_BYTES: Final = 256 << 10
"""Larger tensors are written as JSON there."""
INLINE_CLASSES_BYTES: Final = 256 << 10
"""The best classes of larger tensors are found there."""
_JSON_GROWTHS: Final = {"BOOL": 15, "FP32": 15, "INT8": 13, "UINT8": 11, BYTES: 16}
"""How many times its bytes a tensor takes at most while it is written as JSON, as measured: itself, its text in pieces
and joined. Of strings those with control characters take most. The slices that threads write at a time come on top."""
_OTHER_JSON_GROWTH: Final = 9
MAX_READING_BYTES: Final = 128 << 20
"""What texts take together as values while they are read; one that takes more is read alone."""
_TURN_S: Final = 0.02
"""How long short steps may keep the event loop before others have their turn."""

T = TypeVar("T")
Step = tuple[Callable[[], Any] | None, Callable[..., None], ThreadPoolExecutor | None]
"""The work, where there is any, what is called next, with the work's result, and whose threads do the work."""


def is_long_json(outputs: list[Tensor]) -> bool:
    """Whether writing the outputs as JSON takes too long for the event loop's thread."""
    return any(len(tensor.data) > INLINE_JSON_BYTES for tensor in outputs)


def json_memory_bytes(outputs: list[Tensor]) -> int:
    """What outputs take while they are written as JSON, and until they are sent: as they are, and as the text."""
    return sum(len(tensor.data) * _JSON_GROWTHS.get(tensor.datatype, _OTHER_JSON_GROWTH) for tensor in outputs)


def has_many_strings(inputs: dict[str, Tensor]) -> bool:
    """Whether walking through the inputs' strings, to check them, takes too long for the event loop's thread."""
    return any(_is_long_text(tensor) for tensor in inputs.values())


def count_strings_of(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inputs with long ones walked through, so that nobody does it on the event loop's thread."""
    return {name: _counted(tensor) if _is_long_text(tensor) else tensor for name, tensor in inputs.items()}


def _counted(tensor: Tensor) -> CountedTensor:
    count = position = 0
    data = memoryview(tensor.data)
    while True:
        give_way()
        found, size = count_strings(data[position:], _STRINGS_AT_ONCE)
        count += found
        position += size
        if found < _STRINGS_AT_ONCE:
            return CountedTensor(tensor, count, position)


def _is_long_text(tensor: Tensor) -> bool:
    data = tensor.data
    return (
        len(data) > INLINE_STRINGS_BYTES
        and tensor.datatype == BYTES
        and type(tensor) is not CountedTensor
        and count_strings(data, INLINE_STRINGS)[0] == INLINE_STRINGS
    )


class ReadingMemory:
    """A budget of memory that threads share. One whose work does not fit beside that of others waits for them."""

    def __init__(self, limit_bytes: int = MAX_READING_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._waiting = 0
        self._change = threading.Condition()

    @property
    def waiting(self) -> int:
        """How many threads wait."""
        return self._waiting

    def run(self, size_bytes: int, work: Callable[[], T]) -> T:
        """Does the work as soon as so much is left, or nobody else has any."""
        with self._change:
            self._waiting += 1
            self._change.wait_for(lambda: not self._used_bytes or self._used_bytes + size_bytes <= self._limit_bytes)
            self._waiting -= 1
            self._used_bytes += size_bytes
        try:
            return work()
        finally:
            with self._change:
                self._used_bytes -= size_bytes
                self._change.notify_all()


class OrderedWork:
    """What belongs to one call, one step after the other: what comes behind long work waits for it. Only the work
    itself leaves the event loop's thread; an error, of the work or of what follows it, goes to `fail`."""

    __slots__ = ("_fail", "_loop", "_running", "_threads", "_waiting")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, threads: ThreadPoolExecutor, fail: Callable[[Exception], None]
    ) -> None:
        self._loop = loop
        self._threads = threads
        self._fail = fail
        self._running: tuple[_Job, Future[Any]] | None = None
        self._waiting: deque[Step] = deque()

    @property
    def is_busy(self) -> bool:
        """Whether a step is not done yet."""
        return self._running is not None or bool(self._waiting)

    @property
    def is_running(self) -> bool:
        """Whether a thread has a step, or is about to."""
        return self._running is not None

    @property
    def has_begun(self) -> bool:
        """Whether a thread works on it."""
        return self._running is not None and self._running[1].running()

    def compute(
        self, work: Callable[[], T], then: Callable[[T], None], threads: ThreadPoolExecutor | None = None
    ) -> None:
        """Does the work on a thread, of these or its own, in its turn and calls `then` with the result. A step that
        asks for more work keeps its turn until that is done too."""
        if self._running is None:
            self._start(work, then, threads)
        else:
            self._waiting.append((work, then, threads))

    def follow(self, then: Callable[[], None]) -> None:
        """Calls this in its turn: now, where nothing is under way."""
        if self.is_busy:
            self._waiting.append((None, then, None))
        else:
            self._attempt(then)

    def drop(self) -> None:
        """Nobody waits any more: what has not begun never will, and results are thrown away."""
        self._waiting.clear()
        running, self._running = self._running, None
        if running is not None:
            job, future = running
            job.drop()
            future.cancel()

    def _start(self, work: Callable[[], Any], then: Callable[[Any], None], threads: ThreadPoolExecutor | None) -> None:
        job = _Job(work, then, self._return)
        future = (threads or self._threads).submit(job)
        self._running = job, future
        future.add_done_callback(job.come_back)

    def _return(self, then: Callable[[Any], None], done: Future[Any]) -> None:
        """From the thread that did the work to the loop's."""
        self._loop.call_soon_threadsafe(self._hand_over, then, done)

    def _hand_over(self, then: Callable[[Any], None], done: Future[Any]) -> None:
        if self._running is None or done is not self._running[1]:
            return  # dropped
        self._running = None
        try:
            then(done.result())
        except Exception as error:
            self._fail(error)
        finally:
            del done  # the error's traceback would keep it, and it keeps the error
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and self._running is None:
            work, then, threads = self._waiting.popleft()
            if work is None:
                self._attempt(then)
            else:
                self._start(work, then, threads)

    def _attempt(self, then: Callable[[], None]) -> None:
        try:
            then()
        except Exception as error:
            self._fail(error)


class ShortSteps:
    """Steps that are short and may be many at once, such as cancelling all that clients who leave have asked for. They
    are done at once, in the order in which they came, until they have taken a turn of the event loop; then others have
    theirs in between. The loop is the running one unless another is named."""

    __slots__ = ("_loop", "_turn_end_s", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._turn_end_s = 0.0

    def do(self, steps: Iterable[Callable[[], None]]) -> None:
        """Does the steps, now as far as this turn has time."""
        if self._waiting:
            self._waiting.extend(steps)
            return
        now_s = monotonic()
        if now_s >= self._turn_end_s:
            self._turn_end_s = now_s + _TURN_S
        self._waiting.extend(steps)
        self._work()

    def _go_on(self) -> None:
        self._turn_end_s = monotonic() + _TURN_S
        self._work()

    def _work(self) -> None:
        waiting = self._waiting
        try:
            while waiting:
                waiting.popleft()()
                if monotonic() >= self._turn_end_s:
                    return
        finally:
            if waiting:
                (self._loop or asyncio.get_running_loop()).call_soon(self._go_on)


HandOver = Callable[[Callable[[Any], None], Future[Any]], Any]


class _Job:
    """Work as the threads have it. One that is dropped before its turn stays in their queue, and holds nothing there:
    neither what was to be read nor whom it was to be read for."""

    __slots__ = ("_hand_over", "_then", "_work")

    def __init__(self, work: Callable[[], Any], then: Callable[[Any], None], hand_over: HandOver) -> None:
        self._work: Callable[[], Any] | None = work
        self._then: Callable[[Any], None] | None = then
        self._hand_over: HandOver | None = hand_over

    @property
    def is_wanted(self) -> bool:
        """Whether anybody waits for the result."""
        return self._then is not None

    def __call__(self) -> Any:
        work, self._work = self._work, None
        if work is None:
            return None
        begin(self)
        try:
            return work()
        except UnwantedError:
            return None
        finally:
            end()

    def come_back(self, done: Future[Any]) -> None:
        """On the thread that did the work, or on the loop's where it was cancelled."""
        then, hand_over = self._then, self._hand_over
        if then is None or hand_over is None or done.cancelled():
            return
        try:
            hand_over(then, done)
        except RuntimeError:
            pass  # the loop has ended before its work, and every call with it

    def drop(self) -> None:
        """Nobody waits for it any more."""
        self._work = self._then = self._hand_over = None
