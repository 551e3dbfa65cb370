"""What the worker of a token model runs, the same for all backends of that kind."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from trireme.backends.python.pb_utils.model_config import ModelConfig
from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.backends.token_model.default_tensors import Tensors, complete
from trireme.backends.token_model.engine_model import TokenModel
from trireme.backends.token_model.family import Family

_REQUIRED_INPUTS = 3
"""Prompts, their lengths, and how many tokens are wanted."""


class ServedTokenModel(ABC):
    """A backend's `TritonPythonModel` says which tensors there are, and whose ways are followed."""

    inputs: ClassVar[Tensors]
    outputs: ClassVar[Tensors]

    @abstractmethod
    def family_of(self, config: Mapping[str, Any]) -> Family:
        """Whose ways a model of that configuration follows."""

    @classmethod
    def auto_complete_config(cls, config: ModelConfig) -> ModelConfig:
        """Fills in the tensors where none are declared; loads nothing."""
        return complete(config, cls.inputs, _REQUIRED_INPUTS, cls.outputs)

    def initialize(self, args: Mapping[str, str]) -> None:
        config: dict[str, Any] = json.loads(args["model_config"])
        self._model = TokenModel(self.family_of(config))
        self._model.start(config, args)

    def execute(self, requests: list[InferenceRequest]) -> None:
        self._model.execute(requests)

    def is_ready(self) -> bool:
        return self._model.is_ready()

    def finalize(self) -> None:
        self._model.stop()
