"""Time as a value that is handed in, so that tests of schedulers never sleep."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Nanoseconds on a clock that never goes back."""

monotonic_ns: Clock = time.monotonic_ns
