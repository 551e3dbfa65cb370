"""What a load request brings along instead of the repository's files: a configuration, or a whole model folder."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trireme.core.errors import InvalidArgumentError

FILE_PREFIX = "file:"


class TemporaryFolder:
    """A model folder made of files that came with a load; removed when nothing refers to it any more."""

    def __init__(self, model_name: str) -> None:
        root = tempfile.mkdtemp(prefix="trireme-model-")
        self.path = Path(root) / model_name
        self._removal = weakref.finalize(self, shutil.rmtree, root, ignore_errors=True)
        try:
            self.path.mkdir()
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """At once, where the load is refused: an error on its way to the client keeps this object alive."""
        self._removal()

    def write(self, parameter: str, content: bytes) -> None:
        """Writes the file that the parameter `file:<relative path>` names; refuses a path that leaves the folder."""
        relative = parameter.removeprefix(FILE_PREFIX)
        target = Path(os.path.normpath(self.path / relative))
        if not target.is_relative_to(self.path) or target == self.path:
            raise InvalidArgumentError(
                f"Invalid file parameter '{parameter}' with normalized path '{target}' "
                "must stay within model directory."
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


@dataclass(frozen=True, slots=True)
class LoadOverride:
    """The parameters of a load request."""

    config_json: str | None = None
    folder: TemporaryFolder | None = None

    @classmethod
    def create(cls, model_name: str, config_json: str | None, files: Mapping[str, bytes]) -> LoadOverride | None:
        """None where the request brings nothing. Blocks on the file system; raises ServingError or OSError."""
        if not files:
            return None if config_json is None else cls(config_json)
        if config_json is None:
            raise InvalidArgumentError("Load parameter 'config' must be specified for model file override")
        folder = TemporaryFolder(model_name)
        try:
            for parameter, content in files.items():
                folder.write(parameter, content)
        except BaseException:
            folder.remove()
            raise
        return cls(config_json, folder)
