"""One response to a request: outputs or an error, and whether it is the last."""

from __future__ import annotations

from typing import Final

from trireme.core.datatype import Parameter
from trireme.core.errors import ServingError
from trireme.core.tensor import Tensor

NO_SEQUENCE: Final[dict[str, Parameter]] = {
    "sequence_id": 0,
    "sequence_start": False,
    "sequence_end": False,
}
"""The parameters with which an ensemble answers a request outside any sequence: one object, which nobody changes and
encoders know."""


class InferenceResponse:
    """Outputs in the model's order, or an error.

    A decoupled model may end with a mark alone: `is_final` with `is_empty`, no outputs and no error. A response
    with an error is final unless the model says otherwise.
    """

    __slots__ = ("error", "is_empty", "is_final", "outputs", "parameters")

    def __init__(
        self,
        outputs: list[Tensor],
        error: ServingError | None = None,
        parameters: dict[str, Parameter] | None = None,
        is_final: bool = True,
        is_empty: bool = False,
    ) -> None:
        self.outputs = outputs
        self.error = error
        self.parameters = parameters
        self.is_final = is_final
        self.is_empty = is_empty

    @classmethod
    def of_error(cls, error: ServingError) -> InferenceResponse:
        """A final response that carries an error."""
        return cls([], error)

    @classmethod
    def final_mark(cls) -> InferenceResponse:
        """The end of a decoupled request without a response of its own."""
        return cls([], is_empty=True)
