"""What ends an analysis, with the exit code of the command; what a server or a model refuses is a ClientError."""

from __future__ import annotations

from typing import Final

from trireme.core.exit_codes import INTERRUPTED
from trireme.tools.client.errors import ClientError, InputError

__all__ = ["INTERRUPTED", "ClientError", "InputError"]

UNMET: Final = 5
"""Everything was measured, and nothing meets the constraints."""
PUT_BACK: Final = 6
"""What --apply wrote did not hold what it promised; the old configuration is there again."""

EXIT_CODES: Final = """exit codes:
  0  done: a configuration was found
  1  the server or the model answered with an error
  2  the command line, the configuration file or an input cannot be used
  3  no server answers, or it went away and did not come back
  4  the server has no such model
  5  measured, but nothing meets the constraints; the results are there
  6  --apply: the new configuration did not hold, the old one is back
  130  Ctrl+C or SIGTERM: the results up to there are kept, and the next run goes on from them"""


class MeasurementError(ClientError):
    """A configuration or a load that cannot be measured; the search goes on without it."""


class PromptTooLongError(MeasurementError):
    """A language model has no room for prompts of this length."""

    def __init__(self, message: str, fitting: int) -> None:
        super().__init__(message)
        self.fitting = fitting
        """What `--isl` could say."""


class Interrupted(Exception):
    """Ctrl+C or SIGTERM: what has been measured is kept."""
