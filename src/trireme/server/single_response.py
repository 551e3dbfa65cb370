"""The one response of a request that may have only one, out of whatever its model sends."""

from __future__ import annotations

from trireme.core.errors import InternalError
from trireme.core.response import InferenceResponse


class SingleResponse:
    """Made where the first response is not already the whole answer."""

    __slots__ = ("_count", "_last")

    def __init__(self) -> None:
        self._count = 0
        self._last: InferenceResponse | None = None

    def take(self, response: InferenceResponse) -> InferenceResponse | None:
        """None as long as more may come; then the response, or an error where there was not exactly one."""
        if not response.is_empty:
            self._count += 1
            self._last = response
        if not response.is_final:
            return None
        if self._last is not None and (self._count == 1 or response.error is not None):
            return self._last
        return InferenceResponse.of_error(InternalError(f"expected a single response, got {self._count}"))
