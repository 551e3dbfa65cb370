"""`habana_frameworks.torch.utils.experimental`: which Gaudi it is."""

from __future__ import annotations

__all__ = ["_get_device_type"]


def _get_device_type() -> int:
    """None of the kinds that Gaudi's software numbers."""
    return -1
