"""Responses held back until those of earlier requests are out (`preserve_ordering`)."""

from __future__ import annotations

from collections import OrderedDict

from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.scheduling.passing_on import pass_on


class ResponseOrder:
    """Requests in the order they came, each with the responses that had to wait."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: OrderedDict[InferenceRequest, list[InferenceResponse]] = OrderedDict()

    def join(self, request: InferenceRequest) -> None:
        """The request came after all those that joined before it."""
        self._held[request] = []

    def respond(self, request: InferenceRequest, response: InferenceResponse) -> None:
        """Lets the response out once every earlier request has had its final one."""
        self._held[request].append(response)
        self._let_out()

    def leave(self, request: InferenceRequest) -> None:
        """The request was answered another way and holds nobody up any longer."""
        if self._held.pop(request, None) is not None:
            self._let_out()

    def _let_out(self) -> None:
        while self._held:
            request, responses = next(iter(self._held.items()))
            if not responses:
                return
            response = responses.pop(0)
            if response.is_final:
                del self._held[request]
            pass_on(request, response)
