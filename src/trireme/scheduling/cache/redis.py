"""The response cache in a Redis that several servers share; one that is away or slow costs hits, never a request."""

from __future__ import annotations

import asyncio
import json
import logging
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trireme.core.clock import Clock, monotonic_ns
from trireme.core.errors import InvalidArgumentError, UnavailableError
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.core.wording.extras import install_line
from trireme.scheduling.cache.key import LongDigests
from trireme.scheduling.cache.local import CachedResponse

log = logging.getLogger(__name__)

DEFAULT_TIMEOUT_MS = 100
"""Without a setting; Triton's default, 0, waits for ever, and a request would with it."""
DEFAULT_POOL_SIZE = 8
RETRY_NS = 1_000_000_000
"""How long a Redis that failed is left alone before it is asked again."""
MAX_INSERTS = 64
"""Insertions under way at once; further ones are left out, so that a slow Redis does not fill the memory."""

_PREFIX = "trireme"
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class RedisOptions:
    """`--cache-config=redis,<setting>=<value>`, under Triton's names."""

    host: str
    port: int
    user: str | None = None
    password: str | None = None
    db: int = 0
    connect_timeout_ms: int = DEFAULT_TIMEOUT_MS
    socket_timeout_ms: int = DEFAULT_TIMEOUT_MS
    wait_timeout_ms: int = DEFAULT_TIMEOUT_MS
    pool_size: int = DEFAULT_POOL_SIZE


class RedisResponseCache:
    """Looks up and inserts; after a failure answers "not known" at once until it is time to try again."""

    def __init__(self, options: RedisOptions, clock: Clock = monotonic_ns) -> None:
        self.digests = LongDigests()
        self._options = options
        self._clock = clock
        self._client = _connect(options)
        self._retry_at_ns = 0
        self._is_down = False
        self._inserts: set[asyncio.Task[None]] = set()
        # A request waits this long in the worst case, whatever the client does inside.
        self._deadline_s = (options.wait_timeout_ms + options.connect_timeout_ms + options.socket_timeout_ms) / 1000

    @property
    def is_usable(self) -> bool:
        """Whether it is worth asking at this moment."""
        return not self._is_down or self._clock() >= self._retry_at_ns

    async def lookup(self, key: str) -> CachedResponse | None:
        """The entry; None where there is none, and where Redis does not answer. Never raises."""
        content = await self._ask(lambda: self._client.get(key))
        if content is None:
            return None
        try:
            return decode_response(content)
        except (ValueError, KeyError, TypeError, struct.error):
            log.warning("the response cache holds something under '%s' that is no response: ignored", key)
            return None

    def insert(self, key: str, response: InferenceResponse) -> None:
        """Begins to write a copy of the response, and does not wait for it."""
        if not self.is_usable or len(self._inserts) >= MAX_INSERTS:
            return
        content = encode_response(response)
        task = asyncio.get_running_loop().create_task(self._write(key, content))
        self._inserts.add(task)
        task.add_done_callback(self._inserts.discard)

    async def close(self) -> None:
        """Ends the connections; what is still being written gets its short time."""
        if self._inserts:
            await asyncio.wait(self._inserts, timeout=self._deadline_s)
        try:
            async with asyncio.timeout(self._deadline_s):
                await self._client.aclose()
        except Exception:  # the server is about to end: nothing depends on a clean goodbye
            log.debug("the connection to Redis did not close", exc_info=True)

    async def _write(self, key: str, content: bytes) -> None:
        await self._ask(lambda: self._client.set(key, content))

    async def _ask(self, command: Callable[[], Any]) -> Any:
        if self._is_down:
            if self._clock() < self._retry_at_ns:
                return None
            self._retry_at_ns = self._clock() + RETRY_NS  # one asks, the others go on without
        try:
            async with asyncio.timeout(self._deadline_s):
                answer = await command()
        except Exception as error:  # whatever the client raises: a cache that fails is a cache that knows nothing
            self._note_failure(error)
            return None
        if self._is_down:
            self._is_down = False
            log.info("the response cache at %s:%d answers again", self._options.host, self._options.port)
        return answer

    def _note_failure(self, error: Exception) -> None:
        self._retry_at_ns = self._clock() + RETRY_NS
        if not self._is_down:
            self._is_down = True
            log.warning(
                "the response cache at %s:%d does not answer (%s): requests are executed until it does",
                self._options.host,
                self._options.port,
                str(error) or type(error).__name__,
            )


def encode_response(response: InferenceResponse) -> bytes:
    """A length, a JSON description of that length, and the content of every output behind it."""
    described = {
        "outputs": [
            [tensor.name, tensor.datatype, list(tensor.shape), len(tensor.data)] for tensor in response.outputs
        ],
        "parameters": response.parameters,
    }
    head = json.dumps(described).encode()
    return b"".join([_LENGTH.pack(len(head)), head, *(bytes(tensor.data) for tensor in response.outputs)])


def decode_response(content: bytes) -> CachedResponse:
    """Undoes `encode_response`; raises ValueError, KeyError, TypeError or struct.error for anything else."""
    (length,) = _LENGTH.unpack_from(content)
    position = _LENGTH.size + length
    described = json.loads(content[_LENGTH.size : position])
    outputs = []
    for name, datatype, shape, size in described["outputs"]:
        outputs.append(Tensor(name, datatype, tuple(shape), content[position : position + size]))
        position += size
    if position != len(content):
        raise ValueError("the content is not as long as its description says")
    return CachedResponse(tuple(outputs), described["parameters"], len(content))


def entry_key(model_name: str, version: int, fingerprint: str, digest: bytes) -> str:
    """The name of an entry in Redis; the fingerprint changes with the model's files."""
    return f"{_PREFIX}:{model_name}:{version}:{fingerprint}:{digest.hex()}"


def _connect(options: RedisOptions) -> Any:
    """A client; it connects when it is first used."""
    try:
        from redis import asyncio as redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
    except ImportError as error:
        raise UnavailableError(
            f"--cache-config=redis needs the Python package 'redis': {install_line('redis')}"
        ) from error
    if options.port not in range(1, 65536):
        raise InvalidArgumentError(f"the port of the Redis cache is a number up to 65535. Got {options.port}")
    pool = redis.BlockingConnectionPool(
        host=options.host,
        port=options.port,
        username=options.user,
        password=options.password,
        db=options.db,
        socket_connect_timeout=options.connect_timeout_ms / 1000,
        socket_timeout=options.socket_timeout_ms / 1000,
        max_connections=options.pool_size,
        timeout=options.wait_timeout_ms / 1000,
        retry=Retry(NoBackoff(), 0),
    )
    return redis.Redis.from_pool(pool)
