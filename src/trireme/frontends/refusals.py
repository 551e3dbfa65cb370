"""What a connection may cost whose requests are long to read and refused in the end."""

from __future__ import annotations

from typing import Final

from trireme.core.errors import ErrorKind, ServingError, UnavailableError
from trireme.protocol.grpc_frames import MessageFault, NoRoomFault

MAX_COSTLY_REFUSALS: Final = 16
"""Requests of one connection that were read beside the event loop, for nothing, while others waited behind them."""


def is_refusal(error: Exception) -> bool:
    """Whether the fault is in what the client sent, and not in what the server has to do at the moment."""
    if isinstance(error, ServingError):
        return error.kind is not ErrorKind.UNAVAILABLE
    return isinstance(error, MessageFault) and not isinstance(error, NoRoomFault)


def too_many_refusals() -> ServingError:
    """For the requests behind them, which nobody reads."""
    return UnavailableError(
        f"{MAX_COSTLY_REFUSALS} requests of this connection took long to read and were refused: it takes no more such"
    )
