"""The response cache in this process: answers by request, the least recently used thrown out when space is short."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from trireme.core.datatype import Parameter
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.observe.cache_stats import CacheStats
from trireme.scheduling.cache.key import LongDigests

ENTRY_OVERHEAD_BYTES: Final = 512
OUTPUT_OVERHEAD_BYTES: Final = 256
"""About what the objects around the content of an entry, and of each of its outputs, take."""

_scopes = itertools.count(1)


class CachedResponse(NamedTuple):
    """A successful response with content of its own: nothing in it is changed or freed by whoever made it."""

    outputs: tuple[Tensor, ...]
    parameters: dict[str, Parameter] | None
    size_bytes: int

    @classmethod
    def of(cls, response: InferenceResponse) -> CachedResponse:
        """Copies what the response only borrows."""
        outputs = tuple(
            Tensor(tensor.name, tensor.datatype, tuple(tensor.shape), bytes(tensor.data)) for tensor in response.outputs
        )
        content = sum(len(tensor.data) + OUTPUT_OVERHEAD_BYTES for tensor in outputs)
        parameters = dict(response.parameters) if response.parameters else None
        return cls(outputs, parameters, content + ENTRY_OVERHEAD_BYTES)

    def response(self) -> InferenceResponse:
        """A response for one client, who may put other outputs in its list."""
        return InferenceResponse(list(self.outputs), None, dict(self.parameters) if self.parameters else None)


class CacheScope:
    """The entries of one loaded copy of one model; a copy never sees what another one answered.

    An ensemble answers what its composing models make it answer, so its scope has an `epoch` that moves when any
    model comes or goes: entries from before are not found any more.
    """

    __slots__ = ("epoch", "number")

    def __init__(self, epoch: Callable[[], int] | None = None) -> None:
        self.number = next(_scopes)
        self.epoch = epoch

    def key(self, digest: bytes) -> CacheKey:
        """The entry of this request at this moment."""
        return CacheKey(self.number, self.epoch() if self.epoch is not None else 0, digest)


class CacheKey(NamedTuple):
    """Where an entry is kept."""

    scope: int
    epoch: int
    digest: bytes


class LocalResponseCache:
    """`--cache-config=local,size=<bytes>`: one for the whole server, shared by all models that use it."""

    def __init__(self, size_bytes: int) -> None:
        self.stats = CacheStats(size_bytes)
        self.digests = LongDigests()
        self._entries: OrderedDict[CacheKey, CachedResponse] = OrderedDict()

    def lookup(self, key: CacheKey) -> CachedResponse | None:
        """The entry, which is now the most recently used."""
        self.stats.lookup_count += 1
        entry = self._entries.get(key)
        if entry is not None:
            self.stats.hit_count += 1
            self._entries.move_to_end(key)
        return entry

    def insert(self, key: CacheKey, response: InferenceResponse) -> None:
        """Keeps a copy of the response, unless it is there or larger than the whole cache."""
        stats = self.stats
        if key in self._entries or sum(len(tensor.data) for tensor in response.outputs) > stats.size_bytes:
            return
        entry = CachedResponse.of(response)
        if entry.size_bytes > stats.size_bytes:
            return
        while stats.used_bytes + entry.size_bytes > stats.size_bytes:
            _, oldest = self._entries.popitem(last=False)
            stats.used_bytes -= oldest.size_bytes
            stats.eviction_count += 1
        self._entries[key] = entry
        stats.used_bytes += entry.size_bytes
        stats.entry_count = len(self._entries)

    def forget(self, scope: CacheScope) -> None:
        """Drops every entry of the copy, which serves no more."""
        for key in [key for key in self._entries if key.scope == scope.number]:
            self.stats.used_bytes -= self._entries.pop(key).size_bytes
        self.stats.entry_count = len(self._entries)
