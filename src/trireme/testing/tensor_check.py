"""What a model's configuration says of inputs and outputs, held against requests and responses as the server does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.backends.python.output_check import OutputCheck
from trireme.config.model_config import ModelConfig
from trireme.config.text.json_parse import from_json
from trireme.core.datatype import BYTES, NUMPY_DTYPE
from trireme.core.errors import InternalError, ServingError
from trireme.core.request import InferenceRequest
from trireme.core.tensor import Tensor
from trireme.observe.stats import ModelStats
from trireme.registry.model import Model
from trireme.registry.repository.repositories import ModelId
from trireme.server.validation import check_request


class TensorCheck:
    """Of one model, whose configuration is final."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        message = from_json(json.dumps(config))
        for entry in message.input:
            if entry.HasField("reshape"):  # which the server has done by the time that the model sees the tensor
                entry.dims[:] = entry.reshape.shape
                entry.ClearField("reshape")
        self._config = ModelConfig.from_message(message)
        name = self._config.name
        self._model = Model(ModelId("", name), 1, self._config, _NoScheduler(), ModelStats(name, 1))
        sequences = message.sequence_batching
        self._added = {control.name for control in sequences.control_input}
        self._added |= {state.input_name for state in sequences.state}
        """Inputs that the server adds itself, and a test brings along where the model looks at them."""
        self._outputs = OutputCheck(self._config, [state.output_name for state in sequences.state], is_strict=True)

    def array_of(self, name: str, value: Any) -> NDArray[Any]:
        """What is no array yet gets the datatype of the input."""
        wanted = self._config.inputs.get(name)
        if wanted is None or isinstance(value, np.ndarray | np.generic):
            return np.asarray(value)
        return np.asarray(value, np.object_ if wanted.datatype == BYTES else NUMPY_DTYPE.get(wanted.datatype))

    def check_inputs(self, tensors: Sequence[Tensor], request_id: str = "") -> None:
        """Raises the error that the server answers with."""
        inputs = {
            tensor.name: tensor
            for tensor in tensors
            if tensor.name in self._config.inputs or tensor.name not in self._added
        }
        request = InferenceRequest(self._config.name, "", request_id, inputs, lambda response: None)
        check_request(self._model, request)

    def output_problem(self, tensors: Sequence[tuple[Any, ...]]) -> ServingError | None:
        """Why the server would answer with an error in place of these outputs; None where it would not."""
        problems = (self._outputs.examine(name, datatype, shape) for name, datatype, shape, _ in tensors)
        return next((problem for problem in problems if problem is not None), None)


class _NoScheduler:
    """In the place of the one that a model has in the server: what is checked here is run by the test."""

    pending_count = inflight_count = 0

    def enqueue(self, request: InferenceRequest) -> None:
        raise InternalError(f"a request to '{request.model_name}' was to be run by a test's check of it")

    async def stop(self) -> None: ...

    async def idle(self) -> None: ...
