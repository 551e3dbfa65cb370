"""`trireme version`: which Trireme this is, and on what it runs."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from trireme import __version__

SUMMARY = "print the version"


def main(arguments: Sequence[str]) -> int:
    """Prints one line."""
    print(f"trireme {__version__} (Python {platform.python_version()}, {platform.system()} {platform.machine()})")
    return 0
