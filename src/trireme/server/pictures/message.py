"""What the server and a decoder process say to each other, over two pipes."""

from __future__ import annotations

import struct
from typing import IO, Final

DONE: Final = 0
"""The rest is the tensor."""
INVALID: Final = 1
"""The picture is broken or too large; the rest says why."""
UNSUPPORTED: Final = 2
"""It is no picture that is known; the rest says which are."""

REQUEST: Final = struct.Struct("<IQ")
"""The sizes of the preprocessing, as JSON, and of the file, which follow in this order."""
ANSWER: Final = struct.Struct("<BQ")
"""One of the above, and the size of what follows."""


def read_exactly(stream: IO[bytes], size: int) -> bytes:
    """Raises EOFError where the other side has ended."""
    data = stream.read(size)
    if len(data) != size:
        raise EOFError
    return data
