"""The folder that is served: its config.pbtxt, its version, and the model.py where it was asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trireme.config.pbtxt import parse_text
from trireme.core.errors import ServingError
from trireme.tools.deploy.options import NameTakenError

CONFIG_NAME = "config.pbtxt"


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """What will be written, by path inside the folder."""

    path: Path
    reference: str
    """The model that it serves."""
    texts: Mapping[str, str]

    def check_name(self, *, is_overwriting: bool) -> None:
        """Raises NameTakenError where the folder serves another model, and must not be replaced."""
        if is_overwriting or not self._is_taken():
            return
        served = self._served_there()
        if served != self.reference:
            what = f"for '{served}'" if served else "and was not made by this command"
            raise NameTakenError(
                f"'{self.path}' is there already {what}: choose another --name or --repository, or replace it with "
                "--overwrite"
            )

    def write(self, *, is_overwriting: bool) -> str:
        """Writes what is not there yet and says so; what is there and was changed stays unless asked."""
        missing = [name for name in self.texts if not (self.path / name).exists()]
        changed = [name for name in self.texts if name not in missing and self._differs(name)]
        for name in missing + (changed if is_overwriting else []):
            file = self.path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self.texts[name], encoding="utf-8")
        if changed and not is_overwriting:
            return (
                f"'{self.path}' is deployed already; kept as it is: {', '.join(changed)} (--overwrite writes it anew)"
            )
        if not missing and not changed:
            return f"'{self.path}' is deployed already; nothing had to be written"
        return "wrote " + ", ".join(str(self.path / name) for name in (*missing, *changed))

    def _is_taken(self) -> bool:
        return self.path.is_dir() and any(self.path.iterdir())

    def _differs(self, name: str) -> bool:
        try:
            return (self.path / name).read_text(encoding="utf-8") != self.texts[name]
        except OSError:
            return True

    def _served_there(self) -> str | None:
        """The model that the folder's own configuration names; None where there is none."""
        path = self.path / CONFIG_NAME
        try:
            message = parse_text(path.read_text(encoding="utf-8"), str(path))
        except (OSError, ValueError, ServingError):
            return None
        for key in ("model", "huggingface_model"):
            if key in message.parameters:
                return str(message.parameters[key].string_value)
        return None


def parameter_lines(parameters: Mapping[str, str]) -> list[str]:
    """Each of them as config.pbtxt has it."""
    return [
        f"parameters {{ key: {json.dumps(key)} value: {{ string_value: {json.dumps(value, ensure_ascii=False)} }} }}"
        for key, value in parameters.items()
    ]
