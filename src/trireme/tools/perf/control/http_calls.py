"""Questions over HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from typing import Any
from urllib.parse import quote

from trireme.tools.perf.address import Address
from trireme.tools.perf.control.patience import ANSWER_S, awaiting, connecting
from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.wire.http1_responses import error_text, length_fault

_MOST_BYTES = 64 << 20
"""Of an answer about a model."""


class HttpServerCalls:
    """One connection that is opened anew where the server has closed it."""

    def __init__(self, address: Address, headers: tuple[tuple[str, str], ...], context: ssl.SSLContext | None) -> None:
        self._authority = address.authority
        self._base = address.base
        self._headers = dict(headers)
        if context is not None:
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                address.host, address.port, timeout=ANSWER_S, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(address.host, address.port, timeout=ANSWER_S)

    def extensions(self) -> set[str]:
        return set(self._get("/v2").get("extensions", ()))

    def metadata(self, model: str, version: str) -> dict[str, Any]:
        return dict(self._get(_path(model, version)))

    def config(self, model: str, version: str) -> dict[str, Any]:
        return dict(self._get(f"{_path(model, version)}/config"))

    def statistics(self, model: str, version: str) -> list[dict[str, Any]]:
        path = f"{_path(model, version)}/stats" if model else "/v2/models/stats"
        return list(self._get(path).get("model_stats", ()))

    def set_trace(self, model: str, settings: dict[str, list[str]]) -> None:
        values = {name: value if name == "trace_level" else value[0] for name, value in settings.items()}
        self._ask("POST", f"{_path(model, '')}/trace/setting", json.dumps(values).encode())

    def register_region(self, name: str, key: str, size_bytes: int) -> None:
        body = json.dumps({"key": key, "offset": 0, "byte_size": size_bytes}).encode()
        self._ask("POST", f"/v2/systemsharedmemory/region/{quote(name, safe='')}/register", body)

    def unregister_region(self, name: str) -> None:
        self._ask("POST", f"/v2/systemsharedmemory/region/{quote(name, safe='')}/unregister", b"")

    def probe(self, path: str) -> None:
        """Any answer will do; raises PerfError where none comes."""
        with awaiting(self._authority, path):
            self._answer("GET", path, None)

    def close(self) -> None:
        self._connection.close()

    def _get(self, path: str) -> dict[str, Any]:
        try:
            found = json.loads(self._ask("GET", path, None))
        except (ValueError, RecursionError):
            raise PerfError(f"the server's answer to {path} is no JSON: is this a server of the v2 protocol?") from None
        return found if isinstance(found, dict) else {}

    def _ask(self, method: str, path: str, body: bytes | None) -> bytes:
        with awaiting(self._authority, path):
            return self._exchange(method, path, body)

    def _exchange(self, method: str, path: str, body: bytes | None) -> bytes:
        status, content = self._answer(method, path, body)
        if status != 200:
            raise PerfError(error_text(status, content))
        return content

    def _answer(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        for is_second in (False, True):
            try:
                if self._connection.sock is None:
                    with connecting(self._authority):
                        self._connection.connect()
                self._connection.request(method, self._base + path, body, self._headers)
                response = self._connection.getresponse()
                fault = length_fault(response.headers.get("Content-Length"))
                if fault and not response.chunked:
                    self._connection.close()
                    raise PerfError(f"the server's answer to {path} cannot be read: {fault}")
                content = response.read(_MOST_BYTES)
                if not response.isclosed():
                    self._connection.close()
                    raise PerfError(f"the server's answer to {path} is longer than {_MOST_BYTES >> 20} MiB")
                break
            except ConnectionRefusedError:
                raise PerfError(f"HTTP client failed: Couldn't connect to server at {self._authority}") from None
            except http.client.BadStatusLine:
                self._connection.close()
                if is_second:
                    raise PerfError("HTTP client failed: the answer is not HTTP/1.1; is this another port?") from None
            except TimeoutError:
                self._connection.close()
                raise
            except (OSError, http.client.HTTPException) as error:
                with contextlib.suppress(OSError):
                    self._connection.close()
                if is_second:
                    raise PerfError(f"HTTP client failed at {self._authority}: {error}") from None
        return response.status, content


def _path(model: str, version: str) -> str:
    versions = f"/versions/{quote(version, safe='')}" if version else ""
    return f"/v2/models/{quote(model, safe='')}{versions}"
