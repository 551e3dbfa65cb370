"""Reads what estimators are saved in. A pickle is a program: whoever wrote the file decides what runs, here, in the
worker process; a file of skops runs nothing."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from trireme.backends.compiled.model_load import ModelLoadError, broken_file, require


def read_saved(path: str, trusted: Sequence[str]) -> Any:
    """By the ending of the file; `trusted` are the types that a file of skops may hold besides those it knows."""
    return _read_skops(path, trusted) if path.endswith(".skops") else _read_pickle(path)


def _read_skops(path: str, trusted: Sequence[str]) -> Any:
    skops = require("skops.io", "sklearn")
    try:
        return skops.load(path, trusted=list(trusted))
    except Exception as error:
        if type(error).__name__ != "UntrustedTypesFoundException":
            raise broken_file(path, "a file of skops", error) from error
        raise ModelLoadError(
            f"'{path}' holds types that nobody trusts yet: {error}; name those that you know in the parameter "
            "'trusted_types', with commas between them"
        ) from error


def _read_pickle(path: str) -> Any:
    """What joblib or pickle wrote, compressed or not; raises ModelLoadError."""
    joblib = require("joblib", "sklearn")
    try:
        return joblib.load(path)
    except ModuleNotFoundError as error:
        raise ModelLoadError(
            f"'{path}' needs the package '{error.name}', which is not installed; install the packages that the model "
            "was saved with, here or in an environment of the model's own (requirements.txt)"
        ) from error
    except (AttributeError, ImportError) as error:
        raise ModelLoadError(
            f"'{path}' was saved with other releases of its libraries, or with a class of a script: {error}; put the "
            "module with the class into the version folder, or the releases into the model's requirements.txt"
        ) from error
    except (pickle.UnpicklingError, EOFError, ValueError, KeyError, IndexError, TypeError) as error:
        raise broken_file(path, "a pickle", error) from error
