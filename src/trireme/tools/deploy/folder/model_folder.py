"""The folder that is served: its config.pbtxt, its version, and the model.py where it was asked for."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trireme.config.text.pbtxt import parse_text
from trireme.core.errors import ServingError
from trireme.tools.deploy.folder.fingerprint import has_same_origin, is_untouched
from trireme.tools.deploy.options import DeployError, NameTakenError

CONFIG_NAME = "config.pbtxt"
CODE_NAME = "1/model.py"


@dataclass(frozen=True, slots=True)
class Written:
    """What was done to a folder."""

    told: str
    warning: str | None
    """What the user asked for and did not get."""


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
        served = model_named_in(self.path / CONFIG_NAME)
        if served != self.reference:
            what = f"for '{served}'" if served else "and was not made by this command"
            raise NameTakenError(
                f"'{self.path}' is there already {what}: choose another --name or --repository, or replace it with "
                "--overwrite"
            )

    def check_place(self) -> None:
        """Raises DeployError where nothing can be written."""
        there = next((place for place in (self.path, *self.path.parents) if os.path.exists(place)), Path())
        if not os.path.isdir(there):
            raise self._refusal(self.path, f"'{there}' is not a folder")
        if not os.access(there, os.R_OK | os.W_OK | os.X_OK):
            raise self._refusal(self.path, f"there is no permission to write into '{there}'")

    def write(self, *, is_overwriting: bool) -> Written:
        """Writes what is not there yet, and anew what nobody has edited; what was edited stays unless asked. Raises
        DeployError where it cannot be written."""
        missing = [name for name in self.texts if not (self.path / name).exists()]
        changed = [name for name in self.texts if name not in missing and self._text_there(name) != self.texts[name]]
        kept = [] if is_overwriting else [name for name in changed if not self._is_replaceable(name)]
        anew = [name for name in changed if name not in kept]
        try:
            for name in missing + anew:
                file = self.path / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(self.texts[name], encoding="utf-8")
        except OSError as error:
            raise self._refusal(file, error.strerror or str(error)) from None
        return Written(self._told(missing, anew, kept), self._warning(kept))

    def _refusal(self, path: Path, reason: str) -> DeployError:
        return DeployError(f"cannot write '{path}': {reason}; choose another --repository")

    def _told(self, missing: Sequence[str], anew: Sequence[str], kept: Sequence[str]) -> str:
        told = [f"wrote {', '.join(str(self.path / name) for name in missing)}"] if missing else []
        told += [f"wrote anew {', '.join(str(self.path / name) for name in anew)}"] if anew else []
        told += [f"kept as it is: {', '.join(kept)} (--overwrite writes it anew)"] if kept else []
        if missing:
            return "; ".join(told)
        return f"'{self.path}' is deployed already; " + ("; ".join(told) or "nothing had to be written")

    def _warning(self, kept: Sequence[str]) -> str | None:
        if CONFIG_NAME not in kept or has_same_origin(self._text_there(CONFIG_NAME) or "", self.texts[CONFIG_NAME]):
            return None
        return (
            f"'{self.path / CONFIG_NAME}' has been edited and was kept, so options of this command that differ from it "
            "have no effect; --overwrite replaces it"
        )

    def _is_replaceable(self, name: str) -> bool:
        """Whether no work of the user is lost with it; a model.py of theirs would no longer be run."""
        leaves_code = CODE_NAME not in self.texts and (self.path / CODE_NAME).exists()
        return name == CONFIG_NAME and not leaves_code and is_untouched(self._text_there(name) or "")

    def _is_taken(self) -> bool:
        return self.path.is_dir() and any(self.path.iterdir())

    def _text_there(self, name: str) -> str | None:
        try:
            return (self.path / name).read_text(encoding="utf-8")
        except (OSError, ValueError):
            return None


def model_named_in(config: Path) -> str | None:
    """The Hugging Face model that a config.pbtxt names; None where there is none."""
    try:
        message = parse_text(config.read_text(encoding="utf-8"), str(config))
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
