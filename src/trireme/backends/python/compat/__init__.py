"""Lets model files that were written for other releases of the Hugging Face libraries run unchanged in a worker."""

from __future__ import annotations

SWITCH = "TRIREME_LIBRARY_DRIFT"
"""The variable that turns all of this off, with the value 0."""
