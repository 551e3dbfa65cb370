"""From which size on work on a message is done beside the event loop, and the threads that do it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from trireme.core.datatype import BYTES
from trireme.core.tensor import Tensor

INLINE_INFLATE_BYTES: Final = 8 << 10
"""Larger compressed messages are inflated beside the event loop: they may become a thousand times as large."""
INLINE_DEFLATE_BYTES: Final = 128 << 10
"""Larger messages are compressed there."""
INLINE_STRINGS_BYTES: Final = 1 << 20
"""The strings of larger inputs are counted there."""
INLINE_JSON_BYTES: Final = 256 << 10
"""Larger tensors are written as JSON and classified there."""
_THREADS: Final = 2  # for work in Python, which gains nothing from more; each piece of it may take much memory


def create_threads(front_end: str) -> ThreadPoolExecutor:
    """The threads of a front end; none is started before there is work."""
    return ThreadPoolExecutor(_THREADS, thread_name_prefix=f"trireme-{front_end}")


def is_long_text(tensor: Tensor) -> bool:
    """Whether walking through the tensor's strings takes too long for the event loop's thread."""
    return tensor.datatype == BYTES and len(tensor.data) > INLINE_STRINGS_BYTES
