"""Exit codes that all commands, and the server, have in common."""

from __future__ import annotations

from typing import Final

INTERRUPTED: Final = 130
"""Ctrl+C ended it, as shells have it."""
