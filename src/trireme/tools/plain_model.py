"""How a plain folder of Hugging Face is served where nobody has written its config.pbtxt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from trireme.config.autofill import ENGINE, TRANSFORMERS
from trireme.llm.models.catalog import read_spec
from trireme.llm.models.checkpoint import CheckpointError
from trireme.llm.models.fields import UnsupportedModelError
from trireme.tools.deploy.checks.task import is_conversing, is_engine_served
from trireme.tools.deploy.folder.model_folder import CONFIG_NAME, parameter_lines
from trireme.tools.deploy.hub.model_files import read_folder
from trireme.tools.deploy.memory.device import device_memory
from trireme.tools.deploy.options import DeployOptions

_NEEDED = ("torch", "transformers")


@dataclass(frozen=True, slots=True)
class PlainModel:
    """A folder, and what its configuration says."""

    folder: Path
    backend: str
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def told(self) -> str:
        """Who serves it, for a person."""
        if self.backend == ENGINE:
            return f'the engine for language models serves it (backend "{ENGINE}")'
        return f'transformers serves it (backend "{TRANSFORMERS}")'

    def write(self, model_folder: Path) -> None:
        """A model of a repository that serves the folder as it is."""
        model_folder.mkdir(parents=True)
        lines = [f'backend: "{self.backend}"', *parameter_lines(self.parameters)]
        (model_folder / CONFIG_NAME).write_text("\n".join(lines) + "\n", encoding="utf-8")
        (model_folder / "1").symlink_to(self.folder, target_is_directory=True)


def plain_model(folder: Path) -> PlainModel:
    """What `trireme deploy` chooses for this folder and this machine, or the engine where it alone can serve it; raises
    DeployError where the folder cannot be read."""
    options = DeployOptions(str(folder))
    model = read_folder(folder, str(folder), "this folder")
    if is_engine_served(model, options, device_memory(options).device) or _is_for_engine_alone(folder):
        return PlainModel(folder, ENGINE)
    return PlainModel(folder, TRANSFORMERS, {"chat": "true"} if is_conversing(model, options) else {})


def _is_for_engine_alone(folder: Path) -> bool:
    """Whether it is a language model that the engine computes with numpy, and nothing else here could."""
    if all(find_spec(name) is not None for name in _NEEDED) or not any(folder.glob("*.safetensors")):
        return False
    try:
        read_spec(folder)
    except (CheckpointError, UnsupportedModelError):
        return False
    return True
