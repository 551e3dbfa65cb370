"""What all endpoints of this API share: bodies are read beside the loop where they are long, errors have its shape."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from trireme.core.clock import monotonic_ns
from trireme.core.errors import NotFoundError, ServingError
from trireme.frontends.http.background import BackgroundAnswers
from trireme.frontends.http.endpoints.traced import arrival_of
from trireme.frontends.http.endpoints.unread import refuse_unread
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.head import Endpoint, RequestHead
from trireme.frontends.http.options import HttpFrontendOptions
from trireme.protocol.http1.compression import IDENTITY
from trireme.protocol.json_codec.reader import MAX_NAME_CHARS
from trireme.protocol.json_codec.text import QUICK_BYTES, SlowTextError
from trireme.protocol.openai.errors import (
    FieldError,
    TooLargeError,
    UnknownModelError,
    encode_api_error,
    status_and_type,
)
from trireme.protocol.openai.fields import Fields, read_body
from trireme.protocol.openai.known_fields import unknown_fields
from trireme.protocol.openai.requests import ChatRequest, CompletionRequest
from trireme.server.call import CalledModel
from trireme.server.text_models.listing import ADAPTER_MARK
from trireme.server.trace.tracing import Arrival

if TYPE_CHECKING:
    from trireme.server.server import InferenceServer


log = logging.getLogger(__name__)

MOST_WARNINGS = 100
"""Of fields that nobody knows; clients choose the names."""


class ModelRequest(Protocol):
    """A request of this API, once read: a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def model(self) -> str:
        """The model's name."""


RequestT = TypeVar("RequestT", bound=ModelRequest)
T = TypeVar("T")
Answer = Callable[[Exchange, CalledModel, RequestT], None]


def error_form(error: ServingError) -> tuple[int, bytes]:
    """Status and body of an error."""
    return status_and_type(error)[0], encode_api_error(error)


class ModelCalls:
    """Makes endpoints that read a request, find its model, wait for it to be loaded and hand both on."""

    def __init__(self, server: InferenceServer, options: HttpFrontendOptions, background: BackgroundAnswers) -> None:
        self._server = server
        self._max_input_size_bytes = options.max_input_size_bytes
        self.background = background
        self._warned: set[str] = set()

    def endpoint(self, read: Callable[[Fields], RequestT], answer: Answer[RequestT], known: frozenset[str]) -> Endpoint:
        """An endpoint that takes such requests, with these fields."""

        def read_known(fields: Fields) -> RequestT:
            request = read(fields)
            self._warn_of(unknown_fields(fields, known))
            return request

        return Endpoint(
            "inference",
            partial(self._receive, read_known, answer),
            check=self._check,
            max_body_bytes=lambda head: self._max_input_size_bytes,
            error_form=error_form,
        )

    def prepare(self, exchange: Exchange, model: str, encode: Callable[[], T], then: Callable[[T], None]) -> None:
        """Makes the model's inputs of what the client has sent, beside the loop where that is long, and goes on."""
        if len(exchange.body) > QUICK_BYTES:

            def go_on(made: T) -> None:
                if not exchange.is_abandoned:
                    then(made)

            refuse = partial(refuse_unread, self._server.calls, exchange, model, "")
            self.background.ordered_work(exchange, refuse).compute(encode, go_on)
        else:
            then(encode())

    def _warn_of(self, names: list[str]) -> None:
        """Each name once, in the log. May run on a thread."""
        for name in names:
            if name not in self._warned and len(self._warned) < MOST_WARNINGS:
                self._warned.add(name)
                log.warning("clients of /v1 send the field %.80r, which is not known and ignored", name)

    def _check(self, head: RequestHead) -> None:
        """Refuses what no body can make right."""
        if head.content_encoding != IDENTITY:
            raise FieldError(None, "The body is compressed, which this API does not take.")
        if head.content_length > self._max_input_size_bytes:
            raise TooLargeError(head.content_length, self._max_input_size_bytes)

    def _receive(self, read: Callable[[Fields], RequestT], answer: Answer[RequestT], exchange: Exchange) -> None:
        self._check(exchange.head)
        if self._server.tracing.is_on or exchange.head.wants_explanation:
            exchange.received_ns = monotonic_ns()
        body = exchange.body = bytes(exchange.body)  # once: a long one may wait to be read
        model: object = None

        def decode(is_quick: bool = False) -> RequestT:
            nonlocal model
            fields = read_body(body, self._max_input_size_bytes, is_quick)
            model = fields.value("model")
            return read(fields)

        def refuse(error: ServingError) -> None:
            name = model if isinstance(model, str) and len(model) <= MAX_NAME_CHARS else ""
            refuse_unread(self._server.calls, exchange, name, "", error)

        try:
            try:
                request = decode(True) if len(body) <= QUICK_BYTES else None
            except SlowTextError:
                request = None
            if request is None:
                self.background.read(exchange, body, decode, partial(self._open, answer, exchange), refuse)
            else:
                self._open(answer, exchange, request)
        except ServingError as error:
            refuse(error)

    def _open(self, answer: Answer[RequestT], exchange: Exchange, request: RequestT) -> None:
        if exchange.is_abandoned:
            return
        if exchange.tracked is not None:
            exchange.tracked.model = request.model
        try:
            call = self._server.calls.open(request.model, "")
        except NotFoundError:
            opened = self._open_base(request)
            if opened is None:
                self.background.run(exchange, self._refuse_unknown(exchange, request.model))
                return
            call, request = opened
        if call.is_loading:  # what it takes is known for sure once it is loaded
            self.background.run(exchange, self._open_when_loaded(answer, exchange, request))
        else:
            answer(exchange, call, request)

    async def _refuse_unknown(self, exchange: Exchange, name: str) -> None:
        error = UnknownModelError(name, await self._server.text_models.nearest(name))
        refuse_unread(self._server.calls, exchange, name, "", error)

    def _open_base(self, request: RequestT) -> tuple[CalledModel, RequestT] | None:
        """The model whose adapter is asked for, `<model>:<adapter>`; None where there is none such."""
        base, _, adapter = request.model.partition(ADAPTER_MARK)
        try:
            call = self._server.calls.open(base, "") if adapter else None
        except NotFoundError:
            call = None
        if call is None or not (call.has_adapters or call.is_loading):
            return None
        is_written = isinstance(request, CompletionRequest | ChatRequest)  # tokens are those of the model
        return call, replace(request, model=base, **({"adapter": adapter} if is_written else {}))

    async def _open_when_loaded(self, answer: Answer[RequestT], exchange: Exchange, request: RequestT) -> None:
        try:
            await self._server.calls.wait_until_loaded(request.model, "")
            self._open(answer, exchange, request)
        except ServingError as error:
            refuse_unread(self._server.calls, exchange, request.model, "", error)


def arrival_or_none(exchange: Exchange) -> Arrival | None:
    """How the request came, where it may be traced."""
    return arrival_of(exchange) if exchange.received_ns else None
