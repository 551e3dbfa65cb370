"""Endpoints of recordings: begin one, fetch what it has, end it, and ask how it stands."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from trireme import __version__
from trireme.core.errors import InvalidArgumentError
from trireme.core.recorded_call import RecordedCall
from trireme.frontends.http import answers
from trireme.frontends.http.background import BackgroundAnswers
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.head import Endpoint
from trireme.frontends.http.options import MAX_CONTROL_BYTES
from trireme.frontends.http.routing import Route, route
from trireme.protocol.json_codec.text import parse
from trireme.protocol.recording.calls import encode_begin, encode_calls, encode_end
from trireme.protocol.recording.frames import MAGIC

if TYPE_CHECKING:
    from trireme.server.server import InferenceServer

_CATEGORY = "recording"
_OCTETS = b"application/octet-stream"


class RecordingEndpoints:
    """What was recorded is fetched in pieces of the file that it makes; the server itself writes none."""

    def __init__(self, server: InferenceServer, background: BackgroundAnswers) -> None:
        self._recorder = server.recorder
        self._metadata = server.metadata
        self._background = background

    def routes(self) -> list[Route]:
        """The paths of this API."""
        return [
            route("/v2/recording", GET=Endpoint(_CATEGORY, self.status, reads_body=False)),
            route("/v2/recording/start", POST=_control(self.start)),
            route("/v2/recording/fetch", POST=_control(self.fetch)),
            route("/v2/recording/stop", POST=_control(self.stop)),
        ]

    def status(self, exchange: Exchange) -> None:
        """`GET /v2/recording`."""
        exchange.send_json(orjson.dumps(self._recorder.status()))

    def start(self, exchange: Exchange) -> None:
        """`POST /v2/recording/start` answers with the first bytes of the file, and with the recording's id in it."""
        recording = self._recorder.start(_document(exchange))
        server = self._metadata.server()
        facts = {"server": server.name, "server_version": server.version, "trireme": __version__, **recording.status()}
        exchange.send(answers.typed(exchange.head, 200, MAGIC + encode_begin(facts), _OCTETS))

    def fetch(self, exchange: Exchange) -> None:
        """`POST /v2/recording/fetch` answers with the frames behind those that the client says it has."""
        document = _document(exchange)
        calls, recording = self._recorder.fetch(_id_in(document), _received_in(document))
        end = encode_end(recording.status()) if recording.is_over else b""
        work = self._background.ordered_work(exchange)
        work.compute(partial(_frames, calls, end), partial(_send, exchange))

    def stop(self, exchange: Exchange) -> None:
        """`POST /v2/recording/stop`."""
        document = _document(exchange)
        status = self._recorder.stop(_id_in(document), document.get("discard") is True)
        exchange.send_json(orjson.dumps(status))


def _frames(calls: list[RecordedCall], end: bytes) -> bytes:
    return encode_calls(calls) + end


def _send(exchange: Exchange, frames: bytes) -> None:
    exchange.send(answers.typed(exchange.head, 200, frames, _OCTETS))


def _control(answer: Callable[[Exchange], None]) -> Endpoint:
    return Endpoint(_CATEGORY, answer, max_body_bytes=lambda head: MAX_CONTROL_BYTES)


def _document(exchange: Exchange) -> dict[str, Any]:
    document = parse(bytes(exchange.body)) if exchange.body else {}
    if not isinstance(document, dict):
        raise InvalidArgumentError("what is asked of a recording is an object of JSON")
    return document


def _id_in(document: dict[str, Any]) -> str:
    value = document.get("id", "")
    if not isinstance(value, str):
        raise InvalidArgumentError("'id' of a recording is a text")
    return value


def _received_in(document: dict[str, Any]) -> int | None:
    value = document.get("received")
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise InvalidArgumentError("'received' of a recording is a number of calls")
    return value
