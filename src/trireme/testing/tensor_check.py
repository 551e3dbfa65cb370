"""What a model's configuration says of inputs and outputs, held against requests and responses as the server does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.backends.python.output_check import OutputCheck
from trireme.config.model_config import ModelConfig, TensorConfig
from trireme.config.nearest import meant
from trireme.config.text.json_parse import from_json
from trireme.core.datatype import BYTES, NUMPY_DTYPE
from trireme.core.errors import InvalidArgumentError, ServingError
from trireme.core.tensor import Tensor


class TensorCheck:
    """Of one model, whose configuration is final."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        message = from_json(json.dumps(config))
        self._config = ModelConfig.from_message(message)
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

    def check_inputs(self, tensors: Sequence[Tensor]) -> None:
        """Raises InvalidArgumentError for what the server refuses."""
        inputs, model = self._config.inputs, self._config.name
        given = {tensor.name for tensor in tensors}
        for name in given - self._added:
            if name not in inputs:
                raise InvalidArgumentError(
                    f"unexpected inference input '{name}' for model '{model}'{meant(name, inputs)}"
                )
        missing = [name for name, wanted in inputs.items() if not wanted.is_optional and name not in given]
        if missing:
            listed = ", ".join(f"'{name}'" for name in missing)
            raise InvalidArgumentError(f"missing required input(s) {listed} of model '{model}'")
        for tensor in tensors:
            wanted = inputs.get(tensor.name)
            if wanted is not None:
                self._check_form(tensor, wanted)

    def _check_form(self, tensor: Tensor, wanted: TensorConfig) -> None:
        name, model = tensor.name, self._config.name
        if tensor.datatype != wanted.datatype:
            raise InvalidArgumentError(
                f"inference input '{name}' data-type is '{tensor.datatype}', but model '{model}' expects "
                f"'{wanted.datatype}'"
            )
        dims = wanted.dims if wanted.reshape is None else wanted.reshape
        expected = (-1, *dims) if self._config.max_batch_size > 0 else dims
        shape = tuple(tensor.shape)
        if len(shape) != len(expected) or any(want not in (-1, got) for want, got in zip(expected, shape, strict=True)):
            raise InvalidArgumentError(
                f"unexpected shape for input '{name}' for model '{model}'. Expected {list(expected)}, got {list(shape)}"
            )
        if self._config.max_batch_size and shape[0] > self._config.max_batch_size:
            raise InvalidArgumentError(
                f"inference request batch-size must be <= {self._config.max_batch_size} for '{model}'"
            )

    def output_problem(self, tensors: Sequence[tuple[Any, ...]]) -> ServingError | None:
        """Why the server would answer with an error in place of these outputs; None where it would not."""
        problems = (self._outputs.examine(name, datatype, shape) for name, datatype, shape, _ in tensors)
        return next((problem for problem in problems if problem is not None), None)
