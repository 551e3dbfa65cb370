"""What becomes of a body, judged by its head: refused, thrown away, or received up to a size."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from trireme.core.errors import InvalidArgumentError, ServingError, UnavailableError
from trireme.frontends.http.body import BodyCollector, ChunkedBody, DiscardedBody, FixedBody
from trireme.frontends.http.exchange import AnswerSink, Exchange
from trireme.frontends.http.head import RequestHead
from trireme.frontends.http.options import ConnectionLimits
from trireme.protocol.json_codec.text import encode_error

_CHECKED_BODY_BYTES = 64 << 10


def find_refusal(head: RequestHead, connection: AnswerSink) -> ServingError | None:
    """The refusal of a request whose body need not be known; small bodies are received before anybody asks."""
    endpoint = head.endpoint
    if endpoint is None or (endpoint.check is None and endpoint.admit is None):
        return None
    if not (head.is_chunked or head.expects_continue or head.content_length > _CHECKED_BODY_BYTES):
        return None
    try:
        if endpoint.admit is not None:
            endpoint.admit(head, connection.peer)
        if endpoint.check is not None:
            endpoint.check(head)
    except ServingError as error:
        return error
    return None


def answer_with_room(exchange: Exchange, answer: Callable[[Exchange], None], go_on: Callable[[], None]) -> None:
    """Has a request answered that is there and too much: as soon as there is room, or refused where that takes too
    long, or cannot be. Its client is not read from until then."""
    inflight = exchange.connection.inflight

    def answer_late() -> None:
        exchange.leave_line = None
        answer(exchange)
        go_on()

    def refuse(reason: str) -> None:
        exchange.leave_line = None
        exchange.send_own_error(UnavailableError(reason))
        go_on()

    def leave() -> None:
        exchange.leave_line = None
        inflight.stop_waiting(answer_late)
        if not exchange.connection.is_lost:
            asyncio.get_running_loop().call_soon(go_on)  # behind the answer that it has got

    too_large = inflight.fits_never(exchange.held_bytes)
    if too_large:
        exchange.send_json(refusal_body(exchange.head, 413, too_large), 413)
        go_on()
    else:
        exchange.leave_line = leave
        inflight.wait_for_room(answer_late, refuse, exchange.held_bytes, 0)


def refusal_body(head: RequestHead | None, status: int, message: str) -> bytes:
    """An error in the shape of the endpoint that was asked for, where that is known."""
    form = head.endpoint.error_form if head is not None and head.endpoint is not None else None
    if form is None:
        return encode_error(message)
    return form(UnavailableError(message) if status >= 500 else InvalidArgumentError(message))[1]


def missing_bytes(head: RequestHead, received_bytes: int) -> int | None:
    """What is still to come of a body; None where its head does not say."""
    return None if head.is_chunked else max(0, head.content_length - received_bytes)


def size_refusal(head: RequestHead, limits: ConnectionLimits) -> str:
    """Why the announced size is beyond what may even be thrown away, empty where it is not; endpoints that check heads
    have their own word on sizes below that."""
    size, limit = head.content_length, limits.max_body_bytes
    if size > limit:
        return f"request body of {size} bytes is too large: --http-max-binary-size allows {limit} bytes"
    endpoint = head.endpoint
    if endpoint is None or endpoint.check is not None or not endpoint.reads_body or size <= body_limit(head, limits):
        return ""
    return f"request body of {size} bytes is too large"


def body_limit(head: RequestHead, limits: ConnectionLimits) -> int:
    """How large a body may become."""
    limit = head.endpoint.max_body_bytes if head.endpoint is not None else None
    return min(limit(head), limits.max_body_bytes) if limit is not None else limits.max_body_bytes


def throws_body_away(head: RequestHead) -> bool:
    """Whether the endpoint has no use for a body."""
    return head.endpoint is not None and not head.endpoint.reads_body


def create_collector(head: RequestHead, limits: ConnectionLimits, is_unwanted: bool) -> BodyCollector | None:
    """What takes the body; None for a large one, which is received straight into its buffer."""
    if head.is_chunked:
        return ChunkedBody(limits.max_body_bytes if is_unwanted else body_limit(head, limits), not is_unwanted)
    if is_unwanted:
        return DiscardedBody(head.content_length)
    return FixedBody(head.content_length) if head.content_length < limits.large_body_bytes else None
