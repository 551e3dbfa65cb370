"""One unary call of gRPC, on a connection of its own."""

from __future__ import annotations

import contextlib
import socket
import ssl

from trireme.protocol.grpc_frames import MessageFault
from trireme.tools.perf.address import Address
from trireme.tools.perf.control.patience import ANSWER_S, awaiting, connecting
from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.wire.grpc_headers import call_headers
from trireme.tools.perf.wire.grpc_requests import frame, unframe
from trireme.tools.perf.wire.http2_client import ConnectionFault, Http2Client
from trireme.tools.perf.wire.response_headers import ResponseHeaders


class UnaryCaller:
    """A connection for each question: they are few, and a server may close one that is idle."""

    def __init__(self, address: Address, headers: tuple[tuple[str, str], ...], context: ssl.SSLContext | None) -> None:
        self._address = address
        self._headers = headers
        self._context = context

    def call(self, service: str, method: str, message: bytes) -> bytes:
        """The message of the answer; raises PerfError."""
        answer = _OneAnswer()
        client = Http2Client(answer)
        address = self._address
        headers = call_headers(method, address.authority, is_tls=address.is_tls, extra=self._headers, service=service)
        client.request(headers, frame(message))
        try:
            with awaiting(address.authority, method), contextlib.closing(self._connect()) as connection:
                self._exchange(connection, client, answer)
        except ConnectionRefusedError:
            raise PerfError(
                "failed to connect to all addresses; last error: UNKNOWN: "
                f"{address.authority}: Failed to connect to remote host: Connection refused"
            ) from None
        except (OSError, ConnectionFault) as error:
            raise PerfError(f"gRPC client failed at {address.authority}: {error}") from None
        trailers = answer.trailers
        if trailers is None or trailers.grpc_status is None:
            reason = answer.failure or "the answer has no status"
            raise PerfError(f"gRPC client failed: {reason} (is this the port for gRPC?)")
        if trailers.grpc_status != 0:
            raise PerfError(trailers.message or f"gRPC status {trailers.grpc_status}")
        try:
            return unframe(answer.body, answer.encoding)
        except (ValueError, MessageFault) as error:
            raise PerfError(f"the answer to {method} cannot be read: {error}") from None

    def _connect(self) -> socket.socket:
        with connecting(self._address.authority):
            plain = socket.create_connection((self._address.host, self._address.port), timeout=ANSWER_S)
        if self._context is None:
            return plain
        return self._context.wrap_socket(plain, server_hostname=self._address.host)

    def _exchange(self, connection: socket.socket, client: Http2Client, answer: _OneAnswer) -> None:
        while answer.trailers is None and not answer.failure:
            if client.out:
                connection.sendall(b"".join(client.out))
                client.out.clear()
            data = connection.recv(1 << 18)
            if not data:
                answer.failure = "the server closed the connection"
                return
            client.receive(data)


class _OneAnswer:
    """Collects the answer of the one call that is under way."""

    def __init__(self) -> None:
        self.body = b""
        self.trailers: ResponseHeaders | None = None
        self.encoding = ""
        self.failure = ""

    def headers_arrived(self, stream_id: int, headers: ResponseHeaders, is_end: bool) -> None:
        self.encoding = self.encoding or headers.encoding
        if is_end:
            self.trailers = headers

    def data_arrived(self, stream_id: int, data: bytes, is_end: bool) -> None:
        self.body += data

    def stream_reset(self, stream_id: int, code: int) -> None:
        self.failure = f"the server ended the call with error {code}"

    def going_away(self, last_stream_id: int, reason: str) -> None:
        self.failure = f"the server goes away: {reason}"
