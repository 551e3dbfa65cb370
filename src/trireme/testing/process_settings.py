"""What a server does to the process of a model, done to the process of a test and undone: variables and hooks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from trireme.backends.python.compat import VARIABLE as COMPAT_VARIABLE
from trireme.backends.python.placement import device_requests, placements_of, stand_in_words
from trireme.backends.python.process.variables import worker_environment
from trireme.backends.python.worker.process_hooks import install_hooks
from trireme.backends.python.worker.torch_threads import TorchThreads
from trireme.config.compat_words import parse_words, words_of_model
from trireme.core.errors import InvalidArgumentError
from trireme.devices.cpu import find_cpu
from trireme.devices.inventory import SPEC_VARIABLE, Inventory, discover


class ProcessSettings:
    """`compat` and `devices` are what the flags of these names say to a server, which None leaves to the variables
    TRIREME_COMPAT and TRIREME_DEVICES. No device is given out: a model runs on the CPU unless it chooses itself."""

    def __init__(self, compat: str | None, devices: str | None) -> None:
        spec = devices if devices is not None else os.environ.get(SPEC_VARIABLE)
        self._inventory = discover(spec) if spec else Inventory((find_cpu(),))
        try:
            self._words = parse_words(os.environ.get(COMPAT_VARIABLE, "") if compat is None else compat)
        except ValueError as error:
            raise InvalidArgumentError(f"compat: {error}") from None
        self._compat: frozenset[str] = frozenset()
        self._before: dict[str, str | None] = {}
        self._undo: Callable[[], None] | None = None

    def apply(self, config: Mapping[str, Any], threads: TorchThreads) -> None:
        """For a model with this configuration, before its file is loaded."""
        parameters = config.get("parameters", {})
        texts = {name: str(value.get("string_value", "")) for name, value in parameters.items()}
        own_words = words_of_model(str(config.get("name", "")), texts)
        self._compat = frozenset(self._words if own_words is None else own_words) | stand_in_words(self._inventory)
        variables = worker_environment(os.environ, 1, self._compat)
        changed = {name: value for name, value in variables.items() if os.environ.get(name) != value}
        self._before = {name: os.environ.get(name) for name in changed}
        os.environ.update(changed)
        self._undo = install_hooks(threads)

    def check_devices(self, config: Mapping[str, Any]) -> None:
        """Raises InvalidArgumentError where a server would not place the model on the CPU."""
        import json

        from trireme.config.model_config import ModelConfig
        from trireme.config.text.json_parse import from_json

        final = ModelConfig.from_message(from_json(json.dumps(config)))
        device_requests(final, placements_of(final), self._inventory, self._compat)

    def restore(self) -> None:
        """Leaves the process as it was; harmless where nothing was applied."""
        if self._undo is not None:
            self._undo()
            self._undo = None
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._before = {}
