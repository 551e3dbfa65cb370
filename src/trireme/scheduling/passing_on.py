"""The way from a model to whoever waits for its responses: nobody is left waiting, whatever goes wrong on it."""

from __future__ import annotations

import logging

from trireme.core.errors import unwritten_error
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse

log = logging.getLogger(__name__)


def pass_on(request: InferenceRequest, response: InferenceResponse) -> None:
    """Gives the response to whoever waits for it; never raises."""
    try:
        request.respond(response)
    except Exception as error:
        answer_unpassed(request, response, error)


def answer_unpassed(request: InferenceRequest, response: InferenceResponse, error: Exception) -> None:
    """An error takes the place of a response that could not be given to whoever waits for it. What the model still
    makes of the request is not wanted any more: it would stand behind a gap. Never raises."""
    told = "a response to request '%s' of model '%s' was lost"
    log.error(told, request.id, request.model_name, exc_info=error)
    failure = unwritten_error(error)
    if response.error is None:
        request.note_unanswered(failure.message)
    try:
        request.respond(InferenceResponse([], failure, is_final=response.is_final))
    except Exception:
        log.exception("so was the error in its place")
    if not response.is_final:
        request.cancel()
