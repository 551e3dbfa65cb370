"""The model that the Gaudi templates are: texts in INPUT0, each with its continuation in OUTPUT0."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.gaudi.accelerator import accelerator_for
from trireme.backends.gaudi.generation_settings import read_settings
from trireme.backends.gaudi.text_generator import TextGenerator
from trireme.backends.python.pb_utils.errors import TritonError
from trireme.backends.python.pb_utils.logger import Logger
from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.backends.python.pb_utils.response import InferenceResponse
from trireme.backends.python.pb_utils.tensor import Tensor
from trireme.backends.python.worker_device import device_of_worker


class CausalLanguageModel:
    """Derive `TritonPythonModel` from it; the configuration's parameters say the rest."""

    input_name = "INPUT0"
    output_name = "OUTPUT0"
    device_kinds: tuple[str, ...] = ("hpu", "cuda", "cpu")
    """Where it may run."""

    def initialize(self, args: dict[str, str]) -> None:
        """Ready means warm: the graphs of every bucket have been made."""
        settings = read_settings(json.loads(args["model_config"]), args["model_repository"])
        device = settings.device or device_of_worker()
        if device.partition(":")[0] not in self.device_kinds:
            raise ModelLoadError(f"the device must be one of {', '.join(self.device_kinds)}, found '{device}'")
        accelerator = accelerator_for(device)
        Logger.log_info(f"loading '{settings.model}' on {device}")
        self.generator = TextGenerator(settings, accelerator)
        Logger.log_info(f"warm-up: {self.generator.warm_up()}")

    def execute(self, requests: list[InferenceRequest]) -> list[InferenceResponse]:
        """All prompts run together; each request gets the continuations of its own, or its own error."""
        arrays = [self._input(request) for request in requests]
        prompts = [_texts(array) for array in arrays]
        texts = [text for own in prompts if isinstance(own, list) for text in own]
        answers = iter(self.generator.continue_texts(texts))
        return [self._response(own, array, answers) for own, array in zip(prompts, arrays, strict=True)]

    def _input(self, request: InferenceRequest) -> NDArray[Any]:
        """The server has checked that the input is there."""
        return next(tensor for tensor in request.inputs() if tensor.name() == self.input_name).as_numpy()

    def _response(self, own: list[str] | TritonError, array: NDArray[Any], answers: Iterator[str]) -> InferenceResponse:
        if isinstance(own, TritonError):
            return InferenceResponse([], own)
        texts = np.array([next(answers).encode() for _ in own], dtype=np.object_).reshape(array.shape)
        return InferenceResponse([Tensor(self.output_name, texts)])


def _texts(array: NDArray[Any]) -> list[str] | TritonError:
    try:
        return [element.decode() for element in array.reshape(-1)]
    except UnicodeDecodeError as error:
        return TritonError(f"a text must be UTF-8: {error}", TritonError.INVALID_ARG)
