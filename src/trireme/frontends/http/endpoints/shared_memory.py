"""Endpoints of the shared memory APIs: regions of the system's memory, and of GPUs'."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

import orjson

from trireme.core.errors import InvalidArgumentError
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.head import Endpoint
from trireme.frontends.http.options import MAX_CONTROL_BYTES
from trireme.frontends.http.routing import Route, route
from trireme.protocol.json_codec.access import member_of, string_of, uint_of
from trireme.protocol.json_codec.text import parse
from trireme.server.shared_memory import CUDA_HANDLE_BYTES

if TYPE_CHECKING:
    from trireme.server.server import InferenceServer

_CATEGORY = "shared-memory"
_PREFIX = "/v2/(?P<kind>system|cuda)sharedmemory(?:/region/(?P<region>[^/]+))?/"


class SharedMemoryEndpoints:
    """Both APIs over HTTP; the server itself says whether they are allowed."""

    def __init__(self, server: InferenceServer) -> None:
        self._memory = server.shared_memory

    def routes(self) -> list[Route]:
        """The paths of both APIs."""
        register = Endpoint(_CATEGORY, self.register, max_body_bytes=lambda head: MAX_CONTROL_BYTES)
        return [
            route(_PREFIX + "status", GET=Endpoint(_CATEGORY, self.status, reads_body=False)),
            route(_PREFIX + "register", POST=register),
            route(_PREFIX + "unregister", POST=Endpoint(_CATEGORY, self.unregister, reads_body=False)),
        ]

    def status(self, exchange: Exchange) -> None:
        """`GET .../status`."""
        kind, name = exchange.head.names
        entries: list[dict[str, Any]]
        if kind == "system":
            entries = [
                {"name": entry.name, "key": entry.key, "offset": entry.offset, "byte_size": entry.byte_size}
                for entry in self._memory.system_regions(name)
            ]
        else:
            entries = [
                {"name": entry.name, "device_id": entry.device_id, "byte_size": entry.byte_size}
                for entry in self._memory.cuda_regions(name)
            ]
        exchange.send_json(orjson.dumps(entries))

    def register(self, exchange: Exchange) -> None:
        """`POST .../region/<region>/register`."""
        self._memory.check_allowed()
        kind, name = exchange.head.names
        if not name:
            raise InvalidArgumentError(f"'region name' is necessary to register {kind} shared memory region")
        request = parse(bytes(exchange.body))
        if kind == "system":
            key = string_of(_member(request, "key"))
            offset = uint_of(request.get("offset", 0))
            self._memory.register_system(name, key, offset, uint_of(_member(request, "byte_size")))
        else:
            handle = _handle(_member(request, "raw_handle"))
            device_id = uint_of(member_of(request, "device_id"))
            self._memory.register_cuda(name, handle, device_id, uint_of(_member(request, "byte_size")))
        exchange.send_json(b"")

    def unregister(self, exchange: Exchange) -> None:
        """`POST .../[region/<region>/]unregister`."""
        kind, name = exchange.head.names
        self._memory.unregister(kind, name)
        exchange.send_json(b"")


def _member(request: Any, name: str) -> Any:
    if not isinstance(request, dict) or name not in request:
        raise InvalidArgumentError(f"Shared memory register request has no '{name}' field")
    return request[name]


def _handle(value: Any) -> bytes:
    text = string_of(member_of(value, "b64"))
    try:
        handle = base64.b64decode(text)
    except (binascii.Error, ValueError):
        handle = b""
    if len(handle) != CUDA_HANDLE_BYTES:
        raise InvalidArgumentError("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t")
    return handle
