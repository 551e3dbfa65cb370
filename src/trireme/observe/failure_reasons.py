"""Why a request failed, as the failure metric labels it."""

from __future__ import annotations

from typing import Final

REJECTED: Final = "REJECTED"
CANCELED: Final = "CANCELED"
BACKEND: Final = "BACKEND"
OTHER: Final = "OTHER"
FAILURE_REASONS: Final = (REJECTED, CANCELED, BACKEND, OTHER)
