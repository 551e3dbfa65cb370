"""Fills in a model's name, backend, platform and file name from whichever of them are set, or from its files."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from trireme.config.message import ConfigMessage
from trireme.core.errors import InvalidArgumentError

ENSEMBLE_PLATFORM = "ensemble"
TRANSFORMERS = "transformers"
"""The backend for what Hugging Face's `save_pretrained` writes."""
HUGGING_FACE_CONFIG = "config.json"
ENGINE = "llm"
"""The backend for what `trireme build` writes, beside a copy of the model's `config.json`."""
ENGINE_DESCRIPTION = "trireme_engine.json"
MLFLOW = "mlflow"
"""The backend for what MLflow's `save_model` writes."""
MLFLOW_MODEL = "MLmodel"


@dataclass(frozen=True, slots=True)
class ModelFormat:
    """A kind of model file, and the words a configuration uses for it."""

    backend: str
    platform: str
    filename: str
    """What the file, or folder, is called in a version folder unless `default_model_filename` says otherwise."""


MODEL_FORMATS = (
    ModelFormat("tensorflow", "tensorflow_graphdef", "model.graphdef"),
    ModelFormat("tensorflow", "tensorflow_savedmodel", "model.savedmodel"),
    ModelFormat("tensorrt", "tensorrt_plan", "model.plan"),
    ModelFormat("onnxruntime", "onnxruntime_onnx", "model.onnx"),
    ModelFormat("openvino", "", "model.xml"),
    ModelFormat("pytorch", "pytorch_libtorch", "model.pt"),
    ModelFormat("pytorch", "torch_aoti", "model.pt2"),
    ModelFormat("python", "", "model.py"),
    ModelFormat(MLFLOW, "", MLFLOW_MODEL),
    ModelFormat("sklearn", "", "model.skops"),
    ModelFormat("sklearn", "", "model.joblib"),
    ModelFormat("sklearn", "", "model.pkl"),
    ModelFormat("sklearn", "", "model.pickle"),
    ModelFormat("xgboost", "", "model.ubj"),
    ModelFormat("xgboost", "", "model.json"),
    ModelFormat("xgboost", "", "model.xgb"),
    ModelFormat("lightgbm", "", "model.txt"),
    ModelFormat("lightgbm", "", "model.lgb"),
    ModelFormat("catboost", "", "model.cbm"),
    ModelFormat("fil", "", "xgboost.ubj"),
    ModelFormat("fil", "", "xgboost.json"),
    ModelFormat("fil", "", "xgboost.model"),
    ModelFormat("fil", "", "checkpoint.tl"),
    ModelFormat(ENGINE, "", ENGINE_DESCRIPTION),
    ModelFormat(TRANSFORMERS, "", HUGGING_FACE_CONFIG),
)
"""In the order in which files are looked for: where a folder holds several, the first one decides."""

_WITHOUT_DEFAULT_PLATFORM = {"tensorflow"}
_CHOOSING_FILES = {"fil", ENGINE}
"""Backends that find their file by a parameter, or by what is there, so that naming them says nothing of it."""


def autofill(message: ConfigMessage, model_name: str, listings: Iterable[Collection[str]]) -> None:
    """Completes `message` in place; `listings` are the names in each version folder, the deciding folder first.

    Raises InvalidArgumentError where nothing tells the backend.
    """
    if not message.name:
        message.name = model_name
    if message.platform == ENSEMBLE_PLATFORM:
        return
    model_format = _find_format(message, listings)
    if model_format is not None:
        _fill(message, model_format)
    elif not (message.backend or message.platform or message.default_model_filename):
        _fill_from_name(message, model_name)


def _find_format(message: ConfigMessage, listings: Iterable[Collection[str]]) -> ModelFormat | None:
    if message.backend in _CHOOSING_FILES:
        return None
    if message.backend:
        candidates = [known for known in MODEL_FORMATS if known.backend == message.backend]
        if len(candidates) <= 1:
            return candidates[0] if candidates else None
    else:
        candidates = list(MODEL_FORMATS)
    if message.platform:
        return _first(known for known in candidates if known.platform == message.platform)
    found = _by_file(message, candidates, listings)
    if found is None and message.backend and message.backend not in _WITHOUT_DEFAULT_PLATFORM:
        return candidates[0]
    return found


def _by_file(
    message: ConfigMessage, candidates: list[ModelFormat], listings: Iterable[Collection[str]]
) -> ModelFormat | None:
    if message.default_model_filename:
        return _first(known for known in candidates if known.filename == message.default_model_filename)
    for names in listings:
        found = _first(known for known in candidates if known.filename in names)
        if found is not None:
            return found
    return None


def _first(formats: Iterable[ModelFormat]) -> ModelFormat | None:
    return next(iter(formats), None)


def _fill(message: ConfigMessage, model_format: ModelFormat) -> None:
    message.backend = model_format.backend
    if not message.platform:
        message.platform = model_format.platform
    if not message.default_model_filename:
        message.default_model_filename = model_format.filename


def _fill_from_name(message: ConfigMessage, model_name: str) -> None:
    """A model called `anything.<backend>` runs on that backend."""
    _, dot, backend = model_name.partition(".")
    if not dot or not backend:
        raise InvalidArgumentError(
            f"Invalid model name: Could not determine backend for model '{model_name}' with no backend in model "
            "configuration. Expected model name of the form 'model.<backend_name>'."
        )
    message.backend = backend
    message.default_model_filename = f"model.{backend}"
