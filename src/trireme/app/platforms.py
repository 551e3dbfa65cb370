"""Which cloud platform's paths the server answers, from its environment and options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trireme.core.errors import InvalidArgumentError
from trireme.frontends.http.platforms.oci import OciTranslation
from trireme.frontends.http.platforms.sagemaker import INFERENCE_TYPES, PING_MODES, SagemakerTranslation
from trireme.frontends.http.platforms.translation import Translation
from trireme.frontends.http.platforms.vertex_ai import VertexAiTranslation

_OCI_VARIABLES = ("MODEL_DEPLOY_PREDICT_ENDPOINT", "MODEL_DEPLOY_HEALTH_ENDPOINT", "CONTAINER_TYPE")
_VERTEX_ROUTES = ("AIP_PREDICT_ROUTE", "AIP_HEALTH_ROUTE")


def oci_translation(environ: Mapping[str, str]) -> Translation | None:
    """For the HTTP port; None where nothing says that this is a model deployment of Oracle Cloud."""
    if not is_oci(environ):
        return None
    predict, health, container = (environ.get(name, "") for name in _OCI_VARIABLES)
    for name, path in zip(_OCI_VARIABLES, (predict, health), strict=False):
        if path and not path.startswith("/"):
            raise InvalidArgumentError(f"{name} is '{path}', which is not a path: it begins with '/'")
    return OciTranslation(predict, health, _is_triton(container))


def is_oci(environ: Mapping[str, str]) -> bool:
    """Whether something says that this is a model deployment of Oracle Cloud."""
    predict, health, container = (environ.get(name, "") for name in _OCI_VARIABLES)
    return bool(predict or health) or _is_triton(container)


def _is_triton(container: str) -> bool:
    return container.upper() == "TRITON"


def sagemaker_translation(environ: Mapping[str, str], models: Sequence[str]) -> Translation:
    """For SageMaker's port."""
    return SagemakerTranslation(
        environ.get("SAGEMAKER_TRITON_DEFAULT_MODEL_NAME", "") or (models[0] if len(models) == 1 else ""),
        _one_of(environ, "SAGEMAKER_TRITON_INFERENCE_TYPE", INFERENCE_TYPES),
        _one_of(environ, "SAGEMAKER_TRITON_PING_MODE", PING_MODES),
    )


def check_vertex_ai(environ: Mapping[str, str]) -> None:
    """Raises InvalidArgumentError where no port for Vertex AI can be opened, whatever models there will be."""
    missing = [name for name in _VERTEX_ROUTES if not environ.get(name)]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise InvalidArgumentError(f"{' and '.join(missing)} {are} not defined for Vertex AI endpoint")


def vertex_ai_translation(environ: Mapping[str, str], default_model: str, models: Sequence[str]) -> Translation:
    """For Vertex AI's port."""
    check_vertex_ai(environ)
    if default_model and default_model not in models:
        raise InvalidArgumentError(f"Expect the default model '{default_model}' is loaded")
    if not default_model and len(models) != 1:
        raise InvalidArgumentError(
            "Expect the model repository contains only a single model if default model is not specified"
        )
    predict, health = (environ[name] for name in _VERTEX_ROUTES)
    return VertexAiTranslation(predict, health, default_model or models[0])


def _one_of(environ: Mapping[str, str], name: str, known: Sequence[str]) -> str:
    value = environ.get(name) or known[0]
    if value not in known:
        raise InvalidArgumentError(f"{name} is '{value}'; known are {', '.join(known)}")
    return value
