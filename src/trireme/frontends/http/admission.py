"""What becomes of a body, judged by its head: refused, thrown away, or received up to a size."""

from __future__ import annotations

from trireme.core.errors import ServingError
from trireme.frontends.http.body import BodyCollector, ChunkedBody, DiscardedBody, FixedBody
from trireme.frontends.http.exchange import AnswerSink
from trireme.frontends.http.head import RequestHead
from trireme.frontends.http.options import ConnectionLimits

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


def create_collector(head: RequestHead, limits: ConnectionLimits, is_refused: bool) -> BodyCollector | None:
    """What takes the body; None for a large one, which is received straight into its buffer."""
    is_unwanted = is_refused or (head.endpoint is not None and not head.endpoint.reads_body)
    if head.is_chunked:
        return ChunkedBody(limits.max_body_bytes if is_unwanted else body_limit(head, limits), not is_unwanted)
    if is_unwanted:
        return DiscardedBody(head.content_length)
    return FixedBody(head.content_length) if head.content_length < limits.large_body_bytes else None
