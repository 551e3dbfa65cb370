"""The `parameters` of a model's configuration, as a backend reads them: checked, and none ignored in silence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.python.pb_utils.logger import Logger
from trireme.backends.server_parameters import SERVER_PARAMETERS

_PICTURES_OF, _PICTURES = "image_input", "image_"
"""The server makes inputs of pictures, where a configuration declares how."""
_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


class Parameters:
    """Each is asked for by name once; `warn_of_rest` then names those that nobody asked for."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._model = str(config.get("name", ""))
        self._values = {key: str(value["string_value"]) for key, value in config.get("parameters", {}).items()}
        self._rest = set(self._values) - SERVER_PARAMETERS
        if _PICTURES_OF in self._values:
            self._rest = {name for name in self._rest if not name.startswith(_PICTURES)}

    def text(self, *names: str) -> str | None:
        """The value of the first of these names that is there."""
        found = None
        for name in names:
            self._rest.discard(name)
            if found is None:
                found = self._values.get(name)
        return found

    def whole(self, *names: str, least: int = 0) -> int | None:
        """A whole number; raises ModelLoadError for anything else."""
        text = self.text(*names)
        if text is None:
            return None
        try:
            value = int(text)
        except ValueError:
            raise self._wrong(names[0], f"must be a whole number, found '{text}'") from None
        if value < least:
            raise self._wrong(names[0], f"must be at least {least}, found {value}")
        return value

    def flag(self, *names: str) -> bool | None:
        """Yes or no, however it is written; raises ModelLoadError for anything else."""
        text = self.text(*names)
        if text is None:
            return None
        if text.strip().lower() in _TRUE | _FALSE:
            return text.strip().lower() in _TRUE
        raise self._wrong(names[0], f"must be true or false, found '{text}'")

    def warn_of_rest(self, backend: str, without_effect: Mapping[str, str]) -> None:
        """One line for each parameter that has no effect, with the reason where there is a known one."""
        for name in sorted(self._rest):
            why = without_effect.get(name)
            reason = f": {why}" if why else ""
            Logger.log_warn(
                f"parameter '{name}' of model '{self._model}' has no effect on the {backend} backend{reason}"
            )

    def _wrong(self, name: str, what: str) -> ModelLoadError:
        return ModelLoadError(f"parameter '{name}' of model '{self._model}' {what}")
