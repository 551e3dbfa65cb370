"""Files of JSON in the folder of a model's version, as their user has written them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.core.reading.json_levels import read_json


def read_json_file(path: Path, *, if_missing: str) -> Any:
    """What it says; raises ModelLoadError. `if_missing` goes on with `there is no '<path>'`."""
    try:
        return read_json(path.read_text())
    except FileNotFoundError:
        raise ModelLoadError(f"there is no '{path}'{if_missing}") from None
    except OSError as error:
        raise ModelLoadError(f"'{path}' cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ModelLoadError(f"'{path}' is no JSON: {error}") from None
