"""What a request is told that comes when its model's scheduler takes no more."""

from __future__ import annotations

from trireme.core.errors import ServingError, UnavailableError
from trireme.core.request import InferenceRequest


def stopping_error(request: InferenceRequest) -> ServingError:
    """To be raised out of `enqueue`."""
    return UnavailableError(
        "Server is stopping, scheduler for model has stopped accepting new inference requests"
    ).for_request(request.id)
