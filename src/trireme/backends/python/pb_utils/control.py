"""Model control from inside a model, and the folder the model lies in."""

from __future__ import annotations

from collections.abc import Mapping

from trireme.backends.python.channel import messages
from trireme.backends.python.pb_utils import runtime as pb_runtime
from trireme.backends.python.pb_utils.errors import TritonModelException
from trireme.backends.python.pb_utils.types import as_text


def get_model_dir() -> str:
    """The version folder that holds the model's file."""
    return pb_runtime.current().model_dir


def load_model(model_name: str | bytes, config: str | bytes = "", files: Mapping[str, bytes] | None = None) -> None:
    """Loads or reloads a model; `files` maps `file:<path>` to content."""
    name, override = as_text("load_model: model_name", model_name), as_text("load_model: config", config)
    if files is not None and not isinstance(files, dict):
        raise TritonModelException(
            f"failed to load model '{name}', files should be a dictionary of file paths and file contents"
        )
    for path, content in (files or {}).items():
        if not isinstance(path, str) or not isinstance(content, bytes):
            raise TypeError("load_model: files must map paths, as str, to contents, as bytes")
    _ask("Failed to load model", "load", (name, override or None, dict(files or {})))


def unload_model(model_name: str | bytes, unload_dependents: bool = False) -> None:
    """Unloads a model, and with `unload_dependents` those that an ensemble is made of."""
    name = as_text("unload_model: model_name", model_name)
    _ask("Failed to unload model", "unload", (name, bool(unload_dependents)))


def is_model_ready(model_name: str | bytes, model_version: str | bytes = "") -> bool:
    """Whether that version, or the newest for "", can serve."""
    name = as_text("is_model_ready: model_name", model_name)
    version = as_text("is_model_ready: model_version", model_version)
    return bool(_ask("Failed to check model readiness", "is_model_ready", (name, version)))


def _ask(failure: str, operation: str, arguments: tuple[object, ...]) -> object:
    runtime = pb_runtime.current()
    if runtime.phase not in (pb_runtime.INITIALIZING, pb_runtime.SERVING):
        raise TritonModelException(f"{failure}: this is supported in 'initialize' and 'execute' only")
    try:
        return runtime.server_calls.ask(messages.CONTROL, operation, arguments)
    except TritonModelException as error:
        raise TritonModelException(f"{failure}: {error}") from None
