"""Files of the user, read up to a limit, and in pieces, so that Ctrl+C is heard between them."""

from __future__ import annotations

import errno
import os
from typing import Final

MOST_BYTES: Final = 1 << 30
_PIECE_BYTES: Final = 16 << 20


def read_bounded(path: str, most_bytes: int = MOST_BYTES) -> bytes:
    """The content of a file, a device or a pipe; raises OSError, for one that is longer, too."""
    content = bytearray()
    too_long = OSError(errno.EFBIG, f"it has more than {_size(most_bytes)}", path)
    with open(path, "rb", buffering=0) as file:
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise too_long
        while piece := file.read(min(_PIECE_BYTES, most_bytes + 1 - len(content))):
            content += piece
            if len(content) > most_bytes:
                raise too_long
    return bytes(content)


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count >= 1 << 20 and not count % (1 << 20) else f"{count} bytes"
