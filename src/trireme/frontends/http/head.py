"""The head of a request: parsed by httptools once for each distinct run of bytes, with all that follows from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import httptools

from trireme.core.errors import ServingError
from trireme.protocol.bounded_cache import BoundedCache
from trireme.protocol.http1.compression import IDENTITY, choose_coding
from trireme.protocol.http1.multipart import boundary_of

CONNECTION_CLOSE: Final = b"Connection: close\r\n"
CONNECTION_KEEP_ALIVE: Final = b"Connection: keep-alive\r\n"
_MAX_CACHED_HEAD_BYTES: Final = 4096
_CACHE_BYTES: Final = 4 << 20
_FIELD_BYTES: Final = 200
"""What a header takes beside its text."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What answers requests with a certain method and path."""

    category: str
    """The API it belongs to, by which it can be restricted."""
    answer: Callable[[Any], None]
    """Takes the exchange of a complete request; may raise ServingError in place of answering."""
    is_plain: bool = False
    """Whether its refusals go out without a chosen content type."""
    admit: Callable[[RequestHead, str], None] | None = None
    """Takes a head and the client's address, and raises AccessError where the client may not ask for this; called like
    `check`, and before it."""
    check: Callable[[RequestHead], None] | None = None
    """Raises ServingError for a head whose body need not be read; called before a body that is not there yet."""
    max_body_bytes: Callable[[RequestHead], int] | None = None
    """How large a body of unannounced length may become."""
    forwards_headers: bool = False
    """Whether headers become request parameters here."""
    reads_body: bool = True
    """Whether it looks at bodies; those that it does not look at are thrown away as they arrive."""
    error_form: Callable[[ServingError], tuple[int, bytes]] | None = None
    """Status and JSON body of an error, where its API has a shape of its own for them."""


class RequestHead:
    """What a head says. Equal heads share one object, so nobody changes it after it was resolved."""

    __slots__ = (
        "accepted_coding",
        "accepts_binary_events",
        "accepts_events",
        "binary_type",
        "connection_line",
        "content_encoding",
        "content_length",
        "endpoint",
        "expects_continue",
        "form_boundary",
        "forwarded",
        "header_length",
        "headers",
        "is_bodiless",
        "is_chunked",
        "is_keep_alive",
        "load_metrics_format",
        "method",
        "model_name",
        "model_version",
        "names",
        "path",
        "takes_chunks",
        "tells_memory",
        "wants_explanation",
    )

    def __init__(self) -> None:
        self.method = ""
        self.path = ""
        self.headers: list[tuple[str, str]] = []  # names as received
        self.content_length = 0  # -1 for a chunked body
        self.is_chunked = False
        self.is_keep_alive = False
        self.is_bodiless = False  # the answer to HEAD carries headers only
        self.takes_chunks = True
        self.expects_continue = False
        self.connection_line = CONNECTION_CLOSE
        self.header_length: int | None = None  # `Inference-Header-Content-Length`
        self.content_encoding = IDENTITY
        self.accepted_coding = IDENTITY
        self.accepts_events = False  # `Accept: text/event-stream`
        self.accepts_binary_events = False  # ... with `;binary=base64`
        self.form_boundary: bytes | None = None  # `Content-Type: multipart/form-data`
        self.binary_type = b""  # the media type of binary answers on a platform's port
        self.tells_memory = False  # whether too little memory has a status of its own
        self.load_metrics_format = ""
        self.wants_explanation = False  # `X-Explain: 1`
        self.endpoint: Endpoint | None = None  # set by the router
        self.model_name = ""
        self.model_version = ""
        self.names: tuple[str, ...] = ()  # what the path names besides the model
        self.forwarded: dict[str, str] | None = None  # headers that become request parameters

    def close_connection(self) -> None:
        """The answer is the last one of its connection, and says so."""
        self.is_keep_alive = False
        self.connection_line = CONNECTION_CLOSE

    def traceparent(self) -> str:
        """The distributed trace that the client is in; empty where it names none."""
        return next((value for name, value in self.headers if name.lower() == "traceparent"), "")


class MalformedHeadError(ValueError):
    """The bytes are not the head of an HTTP/1 request."""


class HeadReader:
    """Reads heads and remembers them: clients send the same one again and again."""

    __slots__ = ("_closing", "_is_closing", "_resolve", "known")

    def __init__(self, resolve: Callable[[RequestHead], None], is_closing: bool = False) -> None:
        self._resolve = resolve
        self._is_closing = is_closing
        self._closing: HeadReader | None = None
        self.known: BoundedCache[bytes, RequestHead] = BoundedCache(max_bytes=_CACHE_BYTES)

    def read(self, raw: bytes) -> RequestHead:
        """The head in these bytes, which end with its empty line; raises MalformedHeadError."""
        head = self.known.get(raw)
        if head is None:
            head = parse_head(raw)
            self._resolve(head)
            if self._is_closing:
                head.close_connection()
            if len(raw) <= _MAX_CACHED_HEAD_BYTES:
                self.known.keep(raw, head, 3 * len(raw) + _FIELD_BYTES * len(head.headers))
        return head

    def closing(self) -> HeadReader:
        """The same for connections whose first answer is their last, and says so."""
        if self._closing is None:
            self._closing = HeadReader(self._resolve, is_closing=True)
        return self._closing


def closing_head() -> RequestHead:
    """The head of a request that could not be read, for the answer that ends its connection."""
    return RequestHead()


def parse_head(raw: bytes) -> RequestHead:
    """Parses a whole head; raises MalformedHeadError."""
    if raw.count(b"\n") != raw.count(b"\r\n"):
        raise MalformedHeadError("bare line feed")  # the parser might see the end of the head elsewhere than we do
    collected = _Collector()
    parser = collected.parser = httptools.HttpRequestParser(collected)
    try:
        parser.feed_data(raw if raw.isascii() else _with_plain_target(raw))
    except httptools.HttpParserUpgrade:
        pass  # the offer to speak another protocol is not taken up
    except httptools.HttpParserError as error:
        raise MalformedHeadError(str(error)) from None
    if not collected.is_complete:
        raise MalformedHeadError("incomplete request head")
    version = parser.get_http_version()
    if version not in ("1.0", "1.1"):
        raise MalformedHeadError("unsupported HTTP version")
    head = RequestHead()
    head.method = parser.get_method().decode("latin-1")
    head.path = _path_of(collected.url)
    head.headers = [
        (name.decode("latin-1"), value.decode("utf-8", "surrogateescape")) for name, value in collected.headers
    ]
    _read_connection(head, version, collected.is_keep_alive)
    collected.parser = None
    for name, value in head.headers:
        reader = _READERS.get(name.lower())
        if reader is not None:
            reader(head, value)
    _check_framing(head, version)
    return head


def _check_framing(head: RequestHead, version: str) -> None:
    """Refuses a body whose end two readers could see in two places; a proxy before this server may be the other one."""
    names = [name.lower() for name, _ in head.headers]
    if head.is_chunked and "content-length" in names:
        raise MalformedHeadError("Content-Length with Transfer-Encoding")
    hosts = names.count("host")
    if hosts > 1 or (not hosts and version == "1.1"):
        raise MalformedHeadError("more than one Host" if hosts else "missing Host")


def _with_plain_target(raw: bytes) -> bytes:
    """The head with a request line as it should be: curl, too, sends the letters of a path as they are typed."""
    line, end, rest = raw.partition(b"\r\n")
    return b"".join(bytes((byte,)) if byte < 128 else b"%%%02X" % byte for byte in line) + end + rest


class _Collector:
    """Receives httptools' callbacks."""

    def __init__(self) -> None:
        self.parser: Any = None
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.is_complete = False
        self.is_keep_alive = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.is_complete:
            raise MalformedHeadError("more than one request head")
        self.is_complete = True
        self.is_keep_alive = self.parser.should_keep_alive()  # the parser forgets it with the end of the message


def _path_of(url: bytes) -> str:
    """The path without its query; of an absolute URL the path alone."""
    if not url.startswith(b"/"):
        try:
            url = httptools.parse_url(url).path or b"/"
        except httptools.HttpParserError:
            raise MalformedHeadError("invalid request target") from None
    return url.partition(b"?")[0].decode("utf-8", "surrogateescape")


def _read_connection(head: RequestHead, version: str, is_keep_alive: bool) -> None:
    is_old = version == "1.0"
    head.is_keep_alive = is_keep_alive
    head.is_bodiless = head.method == "HEAD"
    head.takes_chunks = not is_old
    if head.is_keep_alive:
        head.connection_line = CONNECTION_KEEP_ALIVE if is_old else b""


def _read_content_length(head: RequestHead, value: str) -> None:
    value = value.strip(" \t")
    if not value.isascii() or not value.isdigit() or len(value) > 18:
        raise MalformedHeadError("invalid Content-Length")
    head.content_length = int(value)


def _read_transfer_encoding(head: RequestHead, value: str) -> None:
    if value.strip().lower() != "chunked" or head.is_chunked:
        raise MalformedHeadError("unsupported Transfer-Encoding")
    head.is_chunked = True
    head.content_length = -1


def read_header_length(head: RequestHead, value: str) -> None:
    """The number at the start of the value, 0 where there is none, as C's atoi reads it."""
    digits = value.strip()
    sign, digits = (-1, digits[1:]) if digits.startswith("-") else (1, digits.removeprefix("+"))
    length = 0
    for digit in digits[:100]:
        if not "0" <= digit <= "9":
            break
        length = 10 * length + int(digit)
    head.header_length = sign * length


def _read_expect(head: RequestHead, value: str) -> None:
    head.expects_continue = value.strip().lower() == "100-continue"


def _read_content_encoding(head: RequestHead, value: str) -> None:
    head.content_encoding = value.strip()


def _read_accept_encoding(head: RequestHead, value: str) -> None:
    head.accepted_coding = choose_coding(value)


def _read_accept(head: RequestHead, value: str) -> None:
    for entry in value.split(","):
        media_type, *settings = (part.strip().lower() for part in entry.split(";"))
        if media_type == "text/event-stream" and not any(map(_is_refusal, settings)):
            head.accepts_events = True
            head.accepts_binary_events = "binary=base64" in settings


def _is_refusal(setting: str) -> bool:
    """Whether it is the quality 0, with which a client names what it does not want."""
    name, _, value = setting.partition("=")
    return name.strip() == "q" and not value.strip(" 0.")


def _read_content_type(head: RequestHead, value: str) -> None:
    head.form_boundary = boundary_of(value)


def _read_load_metrics(head: RequestHead, value: str) -> None:
    head.load_metrics_format = value.strip().lower()


def _read_explain(head: RequestHead, value: str) -> None:
    head.wants_explanation = value.strip().lower() in ("1", "true")


_READERS: Final[dict[str, Callable[[RequestHead, str], None]]] = {
    "content-length": _read_content_length,
    "transfer-encoding": _read_transfer_encoding,
    "inference-header-content-length": read_header_length,
    "expect": _read_expect,
    "content-encoding": _read_content_encoding,
    "content-type": _read_content_type,
    "accept": _read_accept,
    "accept-encoding": _read_accept_encoding,
    "endpoint-load-metrics-format": _read_load_metrics,
    "x-explain": _read_explain,
}
