"""Getting hold of a framework and of the model's file, with errors that say what to do."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping
from typing import Any

from trireme.backends.python.options import SETTINGS_VARIABLE
from trireme.backends.python.pb_utils import runtime as pb_runtime
from trireme.backends.python.worker.results import ModelReturnError
from trireme.core.threads.variables import THREAD_VARIABLES
from trireme.core.wording.distributions import distribution_of
from trireme.core.wording.extras import install_line
from trireme.machine.regular_files import is_odd


class ModelLoadError(ModelReturnError):
    """The model cannot be loaded; the text is for whoever wrote its configuration, and needs no traceback."""


def require(package: str, extra: str) -> Any:
    """The framework's module; raises ModelLoadError with the command that installs it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package.partition(".")[0]:
            raise ModelLoadError(f"the package '{package}' is installed but cannot be imported: {error}") from error
        raise ModelLoadError(
            f"this model needs the package '{distribution_of(package)}', which is not installed; install it with: "
            f"{install_line(extra)}"
        ) from None
    except ImportError as error:  # a library it needs is absent
        raise ModelLoadError(f"the package '{package}' is installed but cannot be imported: {error}") from error


def model_path(config: Mapping[str, Any], *default_names: str) -> str:
    """The file or folder that the configuration names, or else the first default that is there."""
    folder = pb_runtime.current().model_dir
    named = config.get("default_model_filename") or ""
    candidates = [os.path.join(folder, name) for name in ([named] if named else []) + list(default_names)]
    for path in candidates:
        if is_odd(path):
            raise ModelLoadError(f"'{path}' is neither a file nor a folder; put the model's file there")
        if os.path.exists(path):
            return path
    raise ModelLoadError(
        f"unable to find '{candidates[0]}' for model '{config.get('name', '')}'; put the model's file there, or "
        "name it in 'default_model_filename'"
    )


def broken_file(path: str, kind: str, error: BaseException) -> ModelLoadError:
    """The framework did not accept the file; an error without words, or of a lookup, whose text is what was looked
    for, is explained."""
    reason = str(error).strip()
    if not reason or isinstance(error, LookupError):
        raised = ": ".join(filter(None, (type(error).__name__, reason)))
        reason = f"{raised}, so it is damaged, cut short, or something else"
    return ModelLoadError(f"'{path}' ({os.path.getsize(path)} bytes) could not be loaded as {kind}: {reason}")


def backend_settings() -> dict[str, str]:
    """`--backend-config` of this backend and of all backends."""
    settings: dict[str, str] = json.loads(os.environ.get(SETTINGS_VARIABLE) or "{}")
    return settings


def default_max_batch_size(usual: int = 4) -> int:
    """`--backend-config=default-max-batch-size=<n>`; what is usual otherwise, which in Triton is 4."""
    text = backend_settings().get("default-max-batch-size", str(usual))
    try:
        return max(0, int(text))
    except ValueError:
        raise ModelLoadError(f"'default-max-batch-size' of --backend-config must be a number, found '{text}'") from None


def thread_share() -> int:
    """The compute threads of this process: its share of the cores, as the server worked it out, or as its user set."""
    for name in THREAD_VARIABLES:
        text = os.environ.get(name, "").split(",")[0]
        if text.isdigit() and int(text) > 0:
            return int(text)
    return os.cpu_count() or 1
