"""Clients that ask a model as fast as they are answered, on connections of their own."""

from __future__ import annotations

import json
import socket
import threading
import time
from types import TracebackType
from typing import Self

from running_server import int_request

_END = b"\r\n\r\n"


class Crowd(threading.Thread):
    """Every client sends its next request when all have been answered; a connection that is lost is opened again."""

    def __init__(self, port: int, model: str, *, clients: int = 16, most: int | None = None) -> None:
        super().__init__(daemon=True)
        body = json.dumps(int_request(1, 2)).encode()
        head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: test\r\nContent-Length: {len(body)}\r\n\r\n"
        self._request = head.encode() + body
        self._port = port
        self._most = most
        self._sockets = [self._open() for _ in range(clients)]
        self._is_over = False
        self.answered_count = 0
        self.lost_count = 0
        self.lost_in_service_count = 0
        """Requests of clients that had not been refused before."""
        self._refused: set[int] = set()  # clients
        self.failures: list[bytes] = []
        self.last_answer = b""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Returns when all requests are answered."""
        self._is_over = True
        self.join(60)
        assert not self.is_alive(), "a request has no answer"
        for sock in self._sockets:
            sock.close()

    def until_more(self, count: int) -> None:
        """Returns when so many more are answered."""
        wanted = self.answered_count + count
        while self.answered_count < wanted:
            assert self.is_alive(), "it has ended"
            time.sleep(0.01)

    def run(self) -> None:
        while not self._is_over and (self._most is None or self.answered_count < self._most):
            asked = [number for number in range(len(self._sockets)) if self._ask(number)]
            for number in asked:
                self._take(number)

    def _open(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self._port), timeout=30)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def _ask(self, number: int) -> bool:
        try:
            self._sockets[number].sendall(self._request)
        except OSError:
            self._lose(number)
            return False
        return True

    def _take(self, number: int) -> None:
        received = b""
        try:
            while True:
                head, found, body = received.partition(_END)
                if found and len(body) >= _length(head):
                    break
                data = self._sockets[number].recv(1 << 20)
                if not data:
                    raise ConnectionResetError("it was closed")
                received += data
        except OSError:
            self._lose(number)
            return
        self.answered_count += 1
        self.last_answer = body
        if not head.startswith(b"HTTP/1.1 200"):
            self.failures.append(received)
            self._refused.add(number)

    def _lose(self, number: int) -> None:
        self.lost_count += 1
        self.lost_in_service_count += number not in self._refused
        self._sockets[number].close()
        time.sleep(0.01)
        try:
            self._sockets[number] = self._open()
        except ConnectionRefusedError:  # the server has ended
            self._is_over = True


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise AssertionError(head)
