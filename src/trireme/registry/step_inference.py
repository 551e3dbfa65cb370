"""From a step of an ensemble to the model that runs it."""

from __future__ import annotations

from trireme.core.request import InferenceRequest
from trireme.registry.model import ModelInference
from trireme.registry.served_models import ServedModels


class StepInference:
    """The inference port of one ensemble: finds composing models the way the ensemble's place asks for."""

    __slots__ = ("_models", "_namespace", "_target")

    def __init__(self, models: ServedModels, namespace: str, target: ModelInference) -> None:
        self._models = models
        self._namespace = namespace
        self._target = target

    def infer(self, request: InferenceRequest) -> None:
        model = self._models.find_step(self._namespace, request.model_name, request.model_version)
        self._target.infer_on(model, request)
