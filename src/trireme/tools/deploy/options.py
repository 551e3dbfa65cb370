"""What `trireme deploy` was asked for, and why it may not be done."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class DeployError(Exception):
    """The command line cannot be followed; the message says why, and what to do."""

    exit_code = 1


class ModelNotUsableError(DeployError):
    """There is no such model, or what there is cannot be served."""

    exit_code = 2


class HubUnreachableError(DeployError):
    """The model is not on this machine, and the hub cannot be asked."""

    exit_code = 3


class MemoryTooSmallError(DeployError):
    """The model would not fit."""

    exit_code = 4


class NameTakenError(DeployError):
    """The repository has another model of that name."""

    exit_code = 5


BACKENDS = ("auto", "llm", "transformers")
USUAL_BATCH_SIZE = 8
USUAL_NEW_TOKENS = 64


@dataclass(frozen=True, slots=True)
class DeployOptions:
    """What one model is deployed with."""

    model: str
    """A folder, or the id of a model on the hub."""
    task: str | None = None
    """What the model is for; None: read from its configuration."""
    backend: str = "auto"
    """Which of BACKENDS serves it; auto: the engine for language models where it takes the model."""
    name: str | None = None
    """What it is called when it is served; None: the last part of the model's own name."""
    repository: Path = Path("model_repository")
    device: str = "auto"
    dtype: str = "auto"
    revision: str | None = None
    batch_size: int | None = None
    """Requests that may run together; None: what the llm backend lets run, else `USUAL_BATCH_SIZE`."""
    max_new_tokens: int | None = None
    """Of one answer; None: what fits with the llm backend, else `USUAL_NEW_TOKENS`."""
    length_tokens: int | None = None
    """Tokens of a prompt and its answer that memory is counted for; None: the model's context, 1024 at most."""
    memory_bytes: int | None = None
    """What the estimate is compared with; None: what the device has free now."""
    is_ejected: bool = False
    """Whether an editable model.py is written instead of a reference to the backend."""
    trusts_remote_code: bool = False
    uses_chat_template: bool = True
    """Whether prompts are written by the model's chat template, where it has one."""
    is_forced: bool = False
    """Whether to go on where the estimate does not fit."""
    is_overwriting: bool = False
    """Whether files that differ are written anew."""
    is_dry_run: bool = False
    is_served: bool = True
