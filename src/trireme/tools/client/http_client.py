"""The server's HTTP protocol as the commands use it: a connection for each request."""

from __future__ import annotations

import http.client
import io
import json
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import quote

from trireme.tools.client.errors import AnswerError, ClientError, UnreachableError, answer_error
from trireme.tools.client.failures import connection_failure
from trireme.tools.client.http_bodies import decode_answer, decode_flat, encode_call, encode_flat, event_answer
from trireme.tools.client.messages import InferAnswer, InferCall
from trireme.tools.perf.address import Address
from trireme.tools.perf.wire.http1_responses import EventSplitter, error_text, length_fault

_BINARY_LENGTH = "Inference-Header-Content-Length"
_EVENTS = "text/event-stream"
_MOST_BYTES = 2 << 30
"""Of an answer: as many as a message of gRPC can have. What its tensors take is not known before, where shapes vary."""
_MOST_JSON_BYTES = 64 << 20
"""Of an answer about models, and of an error's."""
_PIECE_BYTES = 1 << 20
_NO_STREAM = "the server answered a decoupled model without a stream"
_NO_INFER = "HTTP end point doesn't support models with decoupled transaction policy"
"""How a server says that `infer` is not for a model's streams."""


class HttpClient:
    """A client over HTTP/1.1."""

    def __init__(
        self,
        address: Address,
        headers: tuple[tuple[str, str], ...],
        context: ssl.SSLContext | None,
        timeout_s: float,
        *,
        has_grpc: bool = True,
    ) -> None:
        """`has_grpc`: whoever asks could choose gRPC as well."""
        self._address = address
        self._headers = dict(headers)
        self._context = context
        self._timeout_s = timeout_s
        self._has_grpc = has_grpc

    @property
    def place(self) -> str:
        return f"{'https' if self._address.is_tls else 'http'}://{self._address.authority}{self._address.base}"

    def metadata(self, model: str, version: str) -> dict[str, Any]:
        return self._object(_path(model, version))

    def config(self, model: str, version: str) -> dict[str, Any]:
        return self._object(f"{_path(model, version)}/config")

    def statistics(self, model: str, version: str) -> list[dict[str, Any]]:
        path = f"{_path(model, version)}/stats" if model else "/v2/models/stats"
        return list(self._json("GET", path)["model_stats"])

    def index(self) -> list[dict[str, str]]:
        return list(self._json("POST", "/v2/repository/index"))

    def load(self, model: str, config: str | None) -> None:
        body = {"parameters": {"config": config}} if config is not None else {}
        self._exchange("POST", f"/v2/repository/models/{quote(model, safe='')}/load", json.dumps(body).encode())

    def unload(self, model: str, with_dependents: bool) -> None:
        body = {"parameters": {"unload_dependents": with_dependents}}
        self._exchange("POST", f"/v2/repository/models/{quote(model, safe='')}/unload", json.dumps(body).encode())

    def post(self, path: str, body: bytes) -> bytes:
        """The content of the answer to a call of an API that only HTTP has."""
        return self._exchange("POST", path, body)[0]

    def get(self, path: str) -> Any:
        """The JSON at a path of such an API."""
        return self._json("GET", path)

    def infer(self, call: InferCall) -> InferAnswer:
        body, json_length = encode_call(call, is_binary_answer=True)
        content, answered = self._exchange("POST", f"{_path(call.model, call.version)}/infer", body, json_length)
        return decode_answer(content, answered)

    def stream(self, call: InferCall) -> Iterator[InferAnswer]:
        """Infer as a stream of events, and `generate_stream` of servers that refuse that, before anything came back."""
        path = _path(call.model, call.version)
        body, json_length = encode_call(call, is_binary_answer=False)
        is_begun = False
        try:
            for event in self._events(f"{path}/infer", body, json_length):
                is_begun = True
                yield event_answer(event)
        except AnswerError as error:
            if is_begun or not str(error).endswith((_NO_INFER, _NO_STREAM)):
                raise
            for event in self._events(f"{path}/generate_stream", encode_flat(call), None):
                yield decode_flat(event, call)

    def _events(self, path: str, body: bytes, json_length: int | None) -> Iterator[bytes]:
        with self.borrowed() as connection:
            response = self._ask(connection, "POST", path, body, json_length, _EVENTS)
            splitter = EventSplitter()
            if not response.headers.get("Content-Type", "").startswith(_EVENTS):
                raise AnswerError(_NO_STREAM)
            while data := self._read_some(response):
                yield from self._complete(splitter, data)

    def _complete(self, splitter: EventSplitter, data: bytes) -> list[bytes]:
        try:
            return splitter.feed(data)
        except ValueError as error:
            raise AnswerError(f"the answer of {self.place} cannot be read: {error}") from None

    def _read_some(self, response: http.client.HTTPResponse) -> bytes:
        try:
            return response.read1(1 << 16)
        except (OSError, http.client.HTTPException) as error:
            raise self._failure(error) from None

    def _json(self, method: str, path: str) -> Any:
        try:
            body = None if method == "GET" else b"{}"
            return json.loads(self._exchange(method, path, body, most_bytes=_MOST_JSON_BYTES)[0])
        except (ValueError, RecursionError):
            raise UnreachableError(f"what answers at {self.place} is no server of the v2 protocol") from None

    def _object(self, path: str) -> dict[str, Any]:
        found = self._json("GET", path)
        if not isinstance(found, dict):
            raise AnswerError(f"{self.place} answers {path} with something else than an object of JSON")
        return found

    def _exchange(
        self,
        method: str,
        path: str,
        body: bytes | None,
        json_length: int | None = None,
        most_bytes: int = _MOST_BYTES,
    ) -> tuple[bytes, int | None]:
        """The content, and the length of its JSON part where binary data follows."""
        with self.borrowed() as connection:
            response = self._ask(connection, method, path, body, json_length, "*/*")
            try:
                content = self._content(response, most_bytes)
            except (OSError, http.client.HTTPException) as error:
                raise self._failure(error) from None
            length = response.headers.get(_BINARY_LENGTH)
            if length_fault(length):
                raise AnswerError(
                    f"the answer has the header '{_BINARY_LENGTH}: {str(length)[:32]}', which is no number"
                )
            return content, None if length is None else int(length)

    def _ask(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
        json_length: int | None,
        accept: str,
    ) -> http.client.HTTPResponse:
        headers = {"Accept": accept, **self._headers}
        if json_length is not None:
            headers[_BINARY_LENGTH] = str(json_length)
        try:
            connection.request(method, self._address.base + path, body, headers)
            response = connection.getresponse()
            fault = length_fault(response.headers.get("Content-Length"))
            if fault and not response.chunked:
                raise AnswerError(f"the answer of {self.place} cannot be read: {fault}")
            if response.status != 200:
                text = error_text(response.status, self._content(response, _MOST_JSON_BYTES))
                raise answer_error(text, response.status == 404)
        except ClientError:
            raise
        except (OSError, http.client.HTTPException) as error:
            raise self._failure(error) from None
        return response

    def _content(self, response: http.client.HTTPResponse, most_bytes: int) -> bytes:
        """To its end; raises AnswerError where that does not come in time, and what http.client raises."""
        is_too_long = response.length is not None and response.length > most_bytes  # as it is announced
        gathered = io.BytesIO()  # gives its content away without a copy
        try:
            while not is_too_long and (piece := response.read(_PIECE_BYTES)):
                gathered.write(piece)
                is_too_long = gathered.tell() > most_bytes
            content = gathered.getvalue()
        except MemoryError:
            raise AnswerError(f"there is not enough memory for the answer of {self.place}") from None
        if is_too_long:
            raise AnswerError(f"the answer of {self.place} is longer than {most_bytes >> 20} MiB")
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        return content

    def _failure(self, error: Exception) -> UnreachableError:
        return connection_failure(error, self.place, self._timeout_s, False if self._has_grpc else None)

    @contextmanager
    def borrowed(self) -> Iterator[http.client.HTTPConnection]:
        """The connection for one exchange."""
        with closing(self.open_connection()) as connection:
            yield connection

    def open_connection(self) -> http.client.HTTPConnection:
        host, port = self._address.host, self._address.port
        if self._context is not None:
            return http.client.HTTPSConnection(host, port, timeout=self._timeout_s, context=self._context)
        return http.client.HTTPConnection(host, port, timeout=self._timeout_s)


def _path(model: str, version: str) -> str:
    versions = f"/versions/{quote(version, safe='')}" if version else ""
    return f"/v2/models/{quote(model, safe='')}{versions}"
