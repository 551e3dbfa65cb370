"""What ends a recording early, with the exit code of the command."""

from __future__ import annotations

from trireme.tools.client.errors import ClientError

INCOMPLETE = 5
"""The file ends before what was asked for."""


class RecordingFileError(ClientError):
    """The file cannot be read, or not be written any further."""

    exit_code = INCOMPLETE
