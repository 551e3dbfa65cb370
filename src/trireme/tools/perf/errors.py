"""What ends a run early, with the exit codes of perf_analyzer."""

from __future__ import annotations

from typing import Final

SUCCESS: Final = 0
STABILITY_ERROR: Final = 2
OPTION_ERROR: Final = 3
GENERIC_ERROR: Final = 99


class PerfError(Exception):
    """The sentence for the user, and the exit code of the command."""

    def __init__(self, message: str, exit_code: int = GENERIC_ERROR) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class UsageError(PerfError):
    """A command line that cannot be run."""
