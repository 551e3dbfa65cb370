"""What a worker does to a model's libraries: it rescues what would fail, and changes what works only on request."""

from __future__ import annotations

VARIABLE = "TRIREME_COMPAT"
"""Where a worker finds the words that hold for its model, with commas between them."""
