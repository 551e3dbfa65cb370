"""Why a request failed, as the failure metric labels it."""

from __future__ import annotations

from typing import Final

from trireme.core.errors import ErrorKind, ServingError
from trireme.core.request import InferenceRequest

REJECTED: Final = "REJECTED"
CANCELED: Final = "CANCELED"
BACKEND: Final = "BACKEND"
OTHER: Final = "OTHER"
FAILURE_REASONS: Final = (REJECTED, CANCELED, BACKEND, OTHER)


def is_finished(request: InferenceRequest, error: ServingError | None) -> bool:
    """Whether an error says no more than that a request was ended whose client had all of its answer, or whose failure
    is counted already."""
    is_over = request.is_satisfied or request.is_unanswered
    return is_over and error is not None and error.kind is ErrorKind.CANCELLED


def model_failure_reason(request: InferenceRequest, error: ServingError) -> str:
    """Of a request that its model has answered with an error. A model that ends what its client gave up has not failed;
    an error of its own is one, whoever still waited for it."""
    return CANCELED if request.is_cancelled and error.kind is ErrorKind.CANCELLED else BACKEND
