"""Whether two servers, or two starts of one, have the same model: a digest of its configuration and its files."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path

MAX_CONTENT_BYTES = 1 << 20
"""Files up to here count with their content, larger ones (weights) with size and time."""
_SKIPPED = "__pycache__"


def model_fingerprint(config: bytes, version_folder: Path) -> str:
    """Reads the folder of the version, so not to be called on the event loop's thread; raises OSError."""
    digest = blake2b(config, digest_size=12)
    for parent, folders, files in os.walk(version_folder, onerror=_refuse):
        folders[:] = sorted(name for name in folders if name != _SKIPPED)
        for name in sorted(files):
            path = Path(parent, name)
            status = path.stat()
            digest.update(
                repr((str(path.relative_to(version_folder)), status.st_size)).encode("utf-8", "surrogatepass")
            )
            if status.st_size <= MAX_CONTENT_BYTES:
                digest.update(path.read_bytes())
            else:
                digest.update(repr(status.st_mtime_ns).encode())
    return digest.hexdigest()


def _refuse(error: OSError) -> None:
    """What is in a folder that may not be read may be another model's. A model from a hub has none."""
    if not isinstance(error, FileNotFoundError):
        raise error
