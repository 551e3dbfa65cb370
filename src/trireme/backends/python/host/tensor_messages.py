"""Tensors and errors as messages carry them: small data inside the message, large data in lent memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from trireme.backends.python.channel.messages import INLINE_LIMIT_BYTES
from trireme.backends.python.host.link import HostLink
from trireme.core.errors import (
    PROMPT_TOO_LONG,
    AlreadyExistsError,
    CancelledError,
    ErrorKind,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    PromptTooLongError,
    ServingError,
    UnavailableError,
    UnsupportedError,
)
from trireme.core.tensor import HandedTensor, Tensor

TensorMessage = tuple[str, str, tuple[int, ...] | list[int], Any]
ErrorMessage = tuple[int, str]

_ERROR_OF_KIND: Final[dict[int, type[ServingError]]] = {
    int(error.kind): error
    for error in (
        ServingError,
        InternalError,
        NotFoundError,
        InvalidArgumentError,
        UnavailableError,
        UnsupportedError,
        AlreadyExistsError,
        CancelledError,
    )
} | {PROMPT_TOO_LONG: PromptTooLongError}


def lend(tensors: Iterable[Tensor], link: HostLink, can_hand_over: bool = True) -> list[TensorMessage]:
    """The tensors for a message; large data is copied into the link's arena, unless its memory can be handed over."""
    lent: list[TensorMessage] = []
    for tensor in tensors:
        data: Any = tensor.data
        if len(data) > INLINE_LIMIT_BYTES:
            shown = link.handover.show(tensor) if can_hand_over and isinstance(tensor, HandedTensor) else None
            data = shown or link.arena.place(data)
        lent.append((tensor.name, tensor.datatype, tensor.shape, data))
    return lent


def take_back(tensors: Iterable[TensorMessage], link: HostLink) -> None:
    """Frees the lent memory of tensors whose message was never sent."""
    for _, _, _, data in tensors:
        if type(data) is tuple:
            link.release(data[0], data[1])


def borrow(tensors: Iterable[TensorMessage], link: HostLink) -> list[Tensor]:
    """The tensors of a message; large data is looked at where the worker put it."""
    borrowed: list[Tensor] = []
    for name, datatype, shape, data in tensors:
        if type(data) is tuple:
            borrowed.append(link.borrow(name, datatype, shape, data))
        else:
            borrowed.append(Tensor(name, datatype, shape, data))
    return borrowed


def give_back(tensors: Iterable[TensorMessage], link: HostLink) -> None:
    """Returns the lent memory of tensors that nobody wants."""
    for _, _, _, data in tensors:
        if type(data) is tuple:
            link.view(data)


def error_of(message: ErrorMessage) -> ServingError:
    """The error a worker reported."""
    kind, text = message
    return _ERROR_OF_KIND.get(kind, ServingError)(text)


def error_message(error: BaseException) -> ErrorMessage:
    """An error for a worker; anything that is not a ServingError is an internal one."""
    if isinstance(error, ServingError):
        is_long_prompt = isinstance(error, PromptTooLongError)
        return PROMPT_TOO_LONG if is_long_prompt else int(error.kind), error.message
    return int(ErrorKind.INTERNAL), f"{type(error).__name__}: {error}"
