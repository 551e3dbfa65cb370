"""The model class that the backends for classic models have in common."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from trireme.backends.classic.predictor import Predictor
from trireme.backends.classic.results import as_rows, in_datatype
from trireme.backends.classic.specs import input_specs, output_specs
from trireme.backends.classic.table import TableReader
from trireme.backends.compiled.batching import Arrays, RequestError, Result, run_batch
from trireme.backends.compiled.model_load import default_max_batch_size
from trireme.backends.compiled.parameters import Parameters
from trireme.backends.compiled.tensor_spec import check_config, complete_config
from trireme.backends.python.pb_utils.logger import Logger
from trireme.backends.python.pb_utils.model_config import ModelConfig
from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.backends.python.pb_utils.response import InferenceResponse
from trireme.core.datatype import from_config

USUAL_MAX_BATCH_SIZE = 4096
"""Rows are small and quick to predict, and many come in one request."""


class ClassicModel(ABC):
    """One instance of a model; each library has a subclass that loads its files."""

    backend: ClassVar[str]
    without_effect: ClassVar[Mapping[str, str]] = {}
    """Parameters that are known elsewhere and have nothing to act on here, with the reason."""

    @classmethod
    @abstractmethod
    def load(cls, config: Mapping[str, Any], parameters: Parameters, gpu: int | None) -> Predictor:
        """Reads the model's file; raises ModelLoadError. `gpu` is the device of the instance where it has one."""

    @classmethod
    def auto_complete_config(cls, config: ModelConfig) -> ModelConfig:
        """Fills in what the file says of inputs and outputs."""
        form = config.as_dict()
        predictor = cls.load(form, Parameters(form), None)
        inputs = input_specs(form, predictor)
        return complete_config(
            config, inputs, output_specs(form, predictor, inputs), default_max_batch_size(USUAL_MAX_BATCH_SIZE)
        )

    def initialize(self, args: Mapping[str, str]) -> None:
        """Loads the model."""
        config = json.loads(args["model_config"])
        parameters = Parameters(config)
        gpu = int(args["model_instance_device_id"]) if args["model_instance_kind"] == "GPU" else None
        predictor = self.load(config, parameters, gpu)
        parameters.warn_of_rest(self.backend, self.without_effect)
        inputs = input_specs(config, predictor)
        check_config(config, inputs, output_specs(config, predictor, inputs))
        self._methods = predictor.methods
        self._reader = TableReader(config, predictor)
        self._datatypes = {entry["name"]: from_config(entry["data_type"]) for entry in config["output"]}
        self._is_batching = config["max_batch_size"] > 0

    def execute(self, requests: list[InferenceRequest]) -> list[InferenceResponse]:
        """Predicts once for all rows of the requests."""
        return run_batch(requests, self._run, is_batching=self._is_batching)

    def _run(self, arrays: Arrays, wanted: Sequence[str]) -> dict[str, Result]:
        table = self._reader.table(arrays)
        results = {}
        for name in wanted:
            try:
                rows = as_rows(self._methods[name](table))
            except ValueError as error:  # of values that the model was not made for
                raise RequestError(str(error)) from error
            results[name] = Result(in_datatype(rows, self._datatypes[name]))
        return results


def warn_of_gpu(backend: str, model: str, gpu: int | None) -> None:
    """For libraries that compute on the CPU only."""
    if gpu is not None:
        Logger.log_warn(f"model '{model}' has an instance on a GPU, and the {backend} backend computes on the CPU")
