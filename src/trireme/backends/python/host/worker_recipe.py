"""What a worker process of an instance is, the first one and every one after it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trireme.backends.python.host.session import WorkerSession
from trireme.backends.python.moved_paths import find_moved_paths
from trireme.backends.python.options import ModelParameters, PythonOptions
from trireme.backends.python.placement import Placement
from trireme.backends.python.process.worker_process import Launch
from trireme.backends.services import BackendServices, ModelSource
from trireme.config.model_config import ModelConfig
from trireme.config.text.json_form import to_json
from trireme.core.ports import WorkerWatch

DEFAULT_FILE_NAME = "model.py"


@dataclass(frozen=True, slots=True)
class WorkerRecipe:
    """All that is needed to start a worker for one instance and to tell it what it runs."""

    source: ModelSource
    config: ModelConfig
    """The final one, which the model's `initialize` gets."""
    placement: Placement
    launch: Launch
    """With the variables of the instance's device among those of the process."""
    services: BackendServices
    options: PythonOptions
    parameters: ModelParameters
    runtime_file: Path | None = None
    """The code, where a python-based backend runs the model; None: the model's own file."""

    async def open_session(self) -> WorkerSession:
        """Starts a process; the model is not loaded yet."""
        return await WorkerSession.open(self.launch, self.placement.name, self.services)

    def settings(self) -> dict[str, Any]:
        """What the worker must know before it loads the model's file; the verbose level is that of this moment."""
        source, runtime = self.source, self.runtime_file
        return {
            "model_name": source.name,
            "model_version": str(source.version),
            "model_dir": str(source.model_dir),
            "version_dir": str(source.version_dir),
            "model_file": str(runtime or (source.version_dir / model_file_name(source)).absolute()),
            "source_path_extra": () if runtime is None else (str(runtime.parent),),
            "instance_name": self.placement.name,
            "is_decoupled": self.config.is_decoupled,
            "is_debug": self.launch.inherits_terminal,
            "verbose_level": current_verbose_level(self.services),
        }

    def arguments(self) -> dict[str, str]:
        """What `initialize` of the model gets."""
        return {
            "model_config": self._config_text(),
            "model_instance_kind": self.placement.kind,
            "model_instance_device_id": str(self.placement.device_id),
            "model_instance_name": self.placement.name,
            "model_repository": str(self.source.model_dir),
            "model_version": str(self.source.version),
            "model_name": self.source.name,
        }

    def _config_text(self) -> str:
        text = to_json(self.config.message)
        config = json.loads(text)
        return json.dumps(config) if find_moved_paths(config, self.source.model_dir) else text

    def begin_watch(self) -> WorkerWatch | None:
        """Begins to tell observers how the instance's workers fare; None where nobody wants to know."""
        workers, source = self.services.workers, self.source
        return None if workers is None else workers.watch(source.name, source.version, self.placement.name)


def model_file_name(source: ModelSource) -> str:
    """The model's own file inside its version's folder."""
    return source.config.default_model_filename or DEFAULT_FILE_NAME


def current_verbose_level(services: BackendServices) -> int:
    """The log's, of this moment."""
    return 0 if services.verbose_level is None else services.verbose_level()
