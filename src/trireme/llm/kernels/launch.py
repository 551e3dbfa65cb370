"""How kernels are launched one behind the other."""

from __future__ import annotations

import os

_IS_INTERPRETED = bool(os.environ.get("TRITON_INTERPRET"))


def overlap() -> dict[str, bool]:
    """Launch options of a kernel that may be on its processors before the one before it has ended, and waits there.

    Every kernel between two such that depend on each other has to wait as well.
    """
    return {"OVERLAPS": False} if _IS_INTERPRETED else {"OVERLAPS": True, "launch_pdl": True}
