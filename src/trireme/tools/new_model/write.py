"""The folder of a new model on disk: nothing is overwritten, and nothing is left behind where it cannot be written."""

from __future__ import annotations

import re
from pathlib import Path

from trireme.core.errors import AlreadyExistsError, InvalidArgumentError
from trireme.tools.new_model.templates import TEMPLATES, placed, template_files

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def write_model(kind: str, name: str, repository: Path, hub_model: str) -> list[Path]:
    """Writes the files of a template and returns them, the model's own first; raises ServingError for a name that a
    model cannot have or that is taken, and OSError."""
    if not _NAME.fullmatch(name):
        raise InvalidArgumentError(
            f"'{name}' cannot be the name of a model: it is the name of a folder, of letters, digits, '_', '-' and '.'"
        )
    files = template_files(kind, name, str(repository), hub_model)
    for folder in dict.fromkeys(path.partition("/")[0] for path in files):
        if (repository / folder).exists():
            raise AlreadyExistsError(f"'{repository / folder}' exists; choose another name")
    for folder in TEMPLATES[kind].folders:
        (repository / placed(folder, name)).mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        (repository / path).write_bytes(content)
    return [repository / path for path in sorted(files, key=lambda path: (not path.startswith(f"{name}/"), path))]
